"""Networks at sites: what they answer by study files, against a fit in one process."""

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skpmtl.federated import load_models
from skpmtl.federated.study import Study
from tests.helpers.federated_cases import PARTS, D, M, in_process, released, rows_of
from tests.networks import nets

pytest.importorskip("torch", reason="needs the extra skpmtl[torch]")
pytestmark = [
    pytest.mark.filterwarnings("ignore:The noise of this fit is reproducible"),
    pytest.mark.filterwarnings("ignore:The noise of (one|all) round"),
]
NET = {"module": "tests.networks.nets:mlp", "module__outputs": 3}
CASES = {
    "rounds": ("TorchMeanRegClassifier", {**NET, "n_rounds": 3}),
    "kept": ("TorchMeanRegClassifier", {**NET, "n_rounds": 3, "local": ["2.*"], "batch_size": 5}),
    "meta": ("TorchMetaInitClassifier", {**NET, "inner_steps": 2, "tasks_per_round": 4}),
}


def study_of(case, **settings):
    estimator, parameters = CASES[case]
    given = {
        "name": "test",
        "estimator": estimator,
        "tasks": list(range(M)),
        "features": D,
        "parameters": parameters,
        "classes": [0, 1, 2],
        "seed": 3,
        "n_rows": 8 if "Meta" in estimator else None,
    }
    return Study(**{**given, **settings})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"module": None}, "must name a function"),
        ({"module": "tests.networks.nets:none"}, "is not found here"),
        ({"width": 3}, "no parameter 'width'"),
    ],
)
def test_modules_are_named_in_studies(change, message):
    parameters = {**CASES["rounds"][1], **change}
    with pytest.raises(ValueError, match=message):
        study_of("rounds", parameters=parameters)
    same = study_of("rounds")
    assert json.loads(same.text)["parameters"]["module"] == NET["module"]


@pytest.mark.parametrize("names", [(), ("north", "south")])
@pytest.mark.parametrize("case", CASES)
def test_curator_and_sites_equal_the_fit_in_one_process(case, names, tmp_path):
    from skpmtl.federated.curator import curate
    from skpmtl.federated.secret_shares import new_share_key
    from tests.helpers.federated_sites import InProcessSites

    if names:
        pytest.importorskip("cryptography.hazmat.primitives.hpke", reason="needs cryptography 47")
    servers = {name: new_share_key(tmp_path / f"{name}.key") for name in names}
    study = study_of(case, servers=servers or None)
    whole = in_process(study)
    billboard = curate(InProcessSites(study, tmp_path), study, tmp_path / "curator")
    # With servers every site rounds its own sum.
    rounding, models = (1e-5, 1e-4) if names else (1e-12, 1e-6)
    for ours, theirs in zip(released(billboard), released(whole.billboard_), strict=True):
        assert_allclose(ours, theirs, rtol=1e-12, atol=rounding)
    for k, part in enumerate(PARTS):
        (place,) = (tmp_path / f"site{k}").glob(f"{study.name}-{study.digest[:12]}")
        there = load_models(place)
        assert sorted(there.tasks_.tolist()) == sorted(part)
        expected = whole.coef_[np.searchsorted(whole.tasks_, there.tasks_)]
        assert_allclose(there.coef_, expected, rtol=0, atol=models)
        if not names:
            there.set_params(module=nets.mlp, module__outputs=3)
            X, _, task = rows_of(study)
            mine = np.isin(task, part)
            same = [one.predict(X[mine], task=task[mine]) for one in (there, whole)]
            assert_array_equal(*same)
