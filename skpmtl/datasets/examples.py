"""Generated example tables with names, missing values and public covariates of the tasks."""

from types import MappingProxyType

import numpy as np
from sklearn.utils import Bunch, check_random_state

from .._runtime.hints import RandomState

__all__ = ["make_clinics"]

CLINIC_CATEGORIES = MappingProxyType(
    {
        "sex": ["female", "male"],
        "smoker": ["never", "former", "current"],
        "referral": ["emergency", "practice", "self"],
    }
)
CLINIC_RANGES = MappingProxyType({"age": (18, 95), "weight": (40, 160), "visits": (0, 12)})
_REGIONS = ("east", "north", "south", "west")


def make_clinics(
    n_tasks: int = 120,
    n_rows: tuple = (8, 80),
    *,
    missing: float = 0.12,
    random_state: RandomState = None,
) -> Bunch:
    """Patients of clinics: numbers, categories and gaps, with public covariates of the clinics.

    One task is one clinic: predict the systolic blood pressure of its patients a year after a
    treatment. The coefficients of a clinic are common ones, plus what follows from its region and
    whether it teaches, plus a little of its own. Clinics differ in size, and some record no
    weights at all. Needs pandas.

    Parameters
    ----------
    n_tasks : int, default=120
        Number of clinics.
    n_rows : tuple of two int, default=(8, 80)
        Patients of the smallest and of the largest clinic; small ones are more frequent.
    missing : float, default=0.12
        Probability that weight or smoking was not recorded, at least 0 and less than 1.
    random_state : int, RandomState instance or None, default=None
        Seed of all draws.

    Returns
    -------
    clinics : :class:`~sklearn.utils.Bunch`
        data : DataFrame
            Columns "clinic" (text), "age", "weight", "visits", "sex", "smoker" and "referral".
        target : Series
            "pressure", in mmHg.
        tasks : DataFrame
            Public covariates, one row for each clinic, by its name: "region", "teaching", "beds".
        categories : dict of str to list
            All values that the categories may have: public, and not read from rows.
        ranges : dict of str to tuple
            Public lowest and highest value of the numbers.

    Examples
    --------
    >>> from skpmtl.datasets import make_clinics
    >>> clinics = make_clinics(random_state=0)
    >>> clinics.data["clinic"].nunique(), clinics.tasks.columns.tolist()
    (120, ['region', 'teaching', 'beds'])
    """
    import pandas as pd

    least, most = n_rows
    if not (1 <= least <= most and n_tasks >= 1):
        raise ValueError(f"n_tasks={n_tasks!r} and n_rows={n_rows!r} must be 1 or more.")
    if not 0 <= missing < 1:
        raise ValueError(f"missing={missing!r} must be at least 0 and less than 1.")
    rng = check_random_state(random_state)
    width = max(3, len(str(n_tasks - 1)))
    names = np.array([f"clinic {k:0{width}d}" for k in range(n_tasks)])
    region, teaching = rng.randint(len(_REGIONS), size=n_tasks), rng.random_sample(n_tasks) < 0.3
    beds = np.round(np.exp(rng.normal(4.5 + teaching, 0.5))).astype(int)
    tasks = pd.DataFrame(
        {"region": np.array(_REGIONS)[region], "teaching": teaching, "beds": beds},
        index=pd.Index(names, name="clinic"),
    )

    sizes = least + np.floor((most + 1 - least) * rng.random_sample(n_tasks) ** 2).astype(int)
    clinic = rng.permutation(np.repeat(np.arange(n_tasks), sizes))
    n = len(clinic)
    ranges = {name: (np.array(bounds)) for name, bounds in CLINIC_RANGES.items()}
    numbers = {
        "age": np.clip(np.round(rng.normal(58, 15, n)), *ranges["age"]),
        "weight": np.clip(np.round(rng.normal(80, 15, n), 1), *ranges["weight"]),
        "visits": np.minimum(rng.poisson(2.0, n), ranges["visits"][1]).astype(float),
    }
    shares = {"sex": (0.52, 0.48), "smoker": (0.5, 0.3, 0.2), "referral": (0.25, 0.6, 0.15)}
    codes = {name: rng.choice(len(share), n, p=share) for name, share in shares.items()}
    units = np.column_stack(
        [np.ones(n)]
        + [(x - ranges[name].mean()) / np.ptp(ranges[name]) for name, x in numbers.items()]
        + [codes[name] == k for name in codes for k in range(1, len(shares[name]))]
    )
    common = np.array([132.0, 24.0, 18.0, 6.0, 4.0, 3.0, 8.0, -4.0, -2.0])
    by_region = rng.normal(0.0, 5.0, (len(_REGIONS), len(common)))
    by_teaching = rng.normal(0.0, 5.0, len(common))
    own = rng.normal(0.0, 2.5, (n_tasks, len(common)))
    coef = common + by_region[region] + np.outer(teaching, by_teaching) + own
    pressure = np.einsum("ij,ij->i", units, coef[clinic]) + rng.normal(0.0, 9.0, n)

    table = pd.DataFrame({"clinic": names[clinic], **numbers})
    for name, code in codes.items():
        table[name] = np.array(CLINIC_CATEGORIES[name], dtype=object)[code]
    never = (rng.random_sample(n_tasks) < 0.05)[clinic]
    table.loc[never | (rng.random_sample(n) < missing), "weight"] = np.nan
    table.loc[rng.random_sample(n) < missing, "smoker"] = None
    return Bunch(
        data=table,
        target=pd.Series(np.round(pressure, 1), name="pressure"),
        tasks=tasks,
        categories={name: list(values) for name, values in CLINIC_CATEGORIES.items()},
        ranges=dict(CLINIC_RANGES),
    )
