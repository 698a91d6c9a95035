"""Tasks unlike all others, with and without a budget: 10, 20 and 40 % of them.

    python -m benchmarks.outliers [--repeats R] [--output FILE.csv] [--jobs J]

200 tasks of 15 rows and 12 features have models in two directions; outliers have models of the same
length anywhere. Errors are those of the coefficients over the error of learning alone, of all
tasks, of the outliers, and of the others. Strengths of the exact problems are the best ones of a
grid, by the true models; the private fits are the defaults. "told" is the area under the curve of
`outlier_` for the outliers. About two minutes of one core.
"""

import warnings

import numpy as np
from sklearn.base import clone

from skpmtl import LocalOnly, MPMTLLowRank
from skpmtl.privacy import PrivacyLeakWarning

from .command import RESULTS, command_line, computed, write_rows

FIELDS = ("share", "method", "repeat", "all", "outliers", "others", "told")
STRENGTHS = (0.03, 0.06, 0.12, 0.25, 0.5)
M, N, D, RANK, NOISE = 200, 15, 12, 2, 1.0
EXACT = {"epsilon": None, "tol": 1e-4}
METHODS = {
    "alone": [LocalOnly()],
    "trace norm": [MPMTLLowRank(alpha, **EXACT) for alpha in STRENGTHS],
    "trace norm and outliers": [
        MPMTLLowRank(alpha, outliers="tasks", outlier_alpha=beta, **EXACT)
        for alpha in STRENGTHS
        for beta in STRENGTHS
    ],
    "private, epsilon 1": [MPMTLLowRank(epsilon=1.0)],
    "private, epsilon 10": [MPMTLLowRank(epsilon=10.0)],
}


def draw(share, rng):
    """-> X, y, task, models, which tasks are outliers"""
    basis = np.linalg.qr(rng.standard_normal((D, RANK)))[0]
    W = rng.standard_normal((M, RANK)) @ basis.T * np.sqrt(D / RANK)
    off = rng.permutation(M) < round(share * M)
    W[off] = rng.standard_normal((off.sum(), D))
    task = np.repeat(np.arange(M), N)
    X = rng.standard_normal((M * N, D))
    y = np.sum(X * W[task], axis=1) + NOISE * rng.standard_normal(M * N)
    return X, y, task, W, off


def measured(share, seed):
    """One draw, all methods. -> list of rows"""
    X, y, task, W, off = draw(share, np.random.default_rng([seed, round(100 * share)]))
    rows, alone = [], None
    for name, candidates in METHODS.items():
        fits = []
        for est in candidates:
            est = clone(est).set_params(tasks=range(M))
            if est._is_private():
                est.set_params(random_state=seed)
            fits.append(est.fit(X, y, task=task))
        est = min(fits, key=lambda fit: np.sum((fit.coef_ - W) ** 2))
        square = np.sum((est.coef_ - W) ** 2, axis=1)
        alone = square if alone is None else alone
        parts = {"all": square >= 0, "outliers": off, "others": ~off}
        row = {k: f"{square[part].sum() / alone[part].sum():.4f}" for k, part in parts.items()}
        if hasattr(est, "outlier_"):  # area under the curve
            row["told"] = f"{np.mean(est.outlier_[off][:, None] > est.outlier_[~off]):.3f}"
        rows.append({"share": share, "method": name, "repeat": seed, **row})
    return rows


def main(arguments=None):
    output, text = RESULTS / "outliers.csv", "one draw of each share"
    parser = command_line("outliers", __doc__, output, text, "10 draws", jobs=True)
    options = parser.parse_args(arguments)
    repeats = options.repeats or (1 if options.quick else 10)
    cells = (
        ([(measured, share, seed)], lambda found: found[0])
        for share in (0.1, 0.2, 0.4)
        for seed in range(repeats)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        return write_rows(computed(cells, options.jobs), FIELDS, options.output)


if __name__ == "__main__":
    main()
