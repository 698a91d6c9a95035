"""Secure sums: Flower's SecAgg+ between the real apps, in one process."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tests.helpers.federated_cases import D, M, and_slow, in_process, study_of

pytest.importorskip("flwr", reason="needs Flower: pip install skpmtl[flower]")

from flwr.app import Context, Message, RecordDict
from flwr.common.secure_aggregation.quantization import dequantize, quantize

from skpmtl.exchange import Total
from skpmtl.federated import records
from skpmtl.federated.client import app
from skpmtl.federated.server import curate
from skpmtl.federated.study import LEVELS
from skpmtl.structures.curator import sum_of_moments
from tests.helpers.federated_grid import InProcessGrid, models_of, without_site_1

pytestmark = pytest.mark.filterwarnings("ignore:The noise of this fit is reproducible")


def secure_study(case="rounds", **settings):
    return study_of(case, **{"secure_sum": 3, "timeout": 0.5, **settings})


SUMS = ("rounds", "classes", "lengths", "intercept")
STRUCTURES = ("structures, start", "prior", "labels")
MORE_SUMS = ("algorithm 1", "clusters", "averaging")
MORE_STRUCTURES = ("structures", "structures, labels")


@pytest.mark.parametrize("case", and_slow(SUMS + STRUCTURES, MORE_SUMS + MORE_STRUCTURES))
def test_secure_sums_agree_to_their_rounding(tmp_path, case):
    study = secure_study(case)
    grid = InProcessGrid(study, tmp_path)
    board = curate(grid, study, tmp_path / "curator", a_context())
    whole = in_process(study).billboard_
    # The first release: rounding of three sites, and the room that they leave for it.
    votes = case in STRUCTURES + MORE_STRUCTURES
    first = {"lengths": "length"}.get(case, "vote" if votes else "update")
    total, public = study.questions[first].total, {"clip_norm": 1.0}
    step = 2 * study.sum_range(first, public) / LEVELS
    least = 1 if first == "vote" and case in ("prior", "labels") or first == "length" else M
    moved = np.abs(board.releases[0] - whole.releases[0]).max()
    smaller = (1.0 - study.room(total)) * M * total.reach(public)
    assert 0 < moved <= (3 * step + smaller) / least + 1e-6 * total.reach(public)
    assert len(board.releases) == len(whole.releases)
    assert "secure aggregation" in board.report.notes["transport"]
    assert sorted(models_of(tmp_path, study)) == list(range(M))
    # Site by site nothing but masked integers left.
    sent = [r for r in grid.received if "train" in r.metadata.message_type]
    assert len(sent) == 4 * 3 * len(board.releases)
    for reply in sent:
        assert all(not record for record in reply.content.array_records.values())


def test_triangle_of_a_second_moment_is_as_long_as_the_whole():
    total = Total.of_moment(sum_of_moments, 5)
    W = np.random.default_rng(0).normal(size=(4, 5))
    vector = total.add({"moment": W}, {}, np.arange(4))
    S = total.whole(vector)
    assert_allclose(S, sum_of_moments({"moment": W})["moment"], atol=1e-14)
    assert len(vector) == total.size == 15
    assert_allclose(np.linalg.norm(vector), np.linalg.norm(S))


@pytest.mark.parametrize("case", SUMS + STRUCTURES + MORE_SUMS + MORE_STRUCTURES)
def test_totals_are_within_their_bounds(case):
    """What a single task adds, whatever it sends."""
    study, rng = secure_study(case), np.random.default_rng(0)
    for question in study.questions.values():
        public = {"clip_norm": 0.3}
        for scale in (1e-3, 1.0, 1e9, np.inf):
            with np.errstate(invalid="ignore"):
                sent = {k: scale * rng.normal(size=(1, *s)) for k, s in question.shapes.items()}
            vector = question.total.add(sent, public, np.array([2]))
            assert np.linalg.norm(vector) <= question.total.reach(public) * (1 + 1e-12)
            assert np.size(vector) == question.total.size


def a_context():
    return Context(1, 1, {}, RecordDict(), {})


def test_secure_sum_of_the_sites_that_are_left(tmp_path):
    """A site that is lost in a round counts as zero there, and the denominator stays."""
    study = secure_study(timeout=1.0)
    expected = without_site_1(tmp_path / "b", study_of("rounds"))

    def lost(node, message, reply):
        if node == 1001 and "fitins.config" in message.content.config_records:
            return None
        return reply

    grid = InProcessGrid(study, tmp_path / "a", broken=lost)
    board = curate(grid, study, tmp_path / "a" / "curator", a_context())
    for ours, theirs in zip(board.releases, expected.releases, strict=True):
        assert_allclose(ours, theirs, atol=1e-4)


def test_secure_sum_stops_below_its_threshold_and_goes_on(tmp_path):
    study = secure_study()
    grid = InProcessGrid(
        study, tmp_path,
        broken=lambda node, m, r: None if node > 1000 and "train" in m.metadata.message_type else r,
    )  # fmt: skip
    with pytest.raises(RuntimeError, match="Too few sites"):
        curate(grid, study, tmp_path / "curator", a_context())
    board = curate(InProcessGrid(study, tmp_path), study, tmp_path / "curator", a_context())
    assert_allclose(board.centres, in_process(study).billboard_.centres, atol=1e-4)


def test_site_with_secure_sums_answers_no_plain_question(tmp_path, caplog):
    study = secure_study()
    grid = InProcessGrid(study, tmp_path)
    curate(grid, study, tmp_path / "curator", a_context())
    content = records.write(
        {"board.centre": np.zeros((1, D))}, study=study.digest, number=99, public="{}",
        statistic="update", positions=[1, 4, 6],
    )  # fmt: skip
    message = Message(content, dst_node_id=1000, message_type="train.answer")
    reply = app(message, grid.contexts[1000])
    assert dict(reply.content["settings"])["reason"] == "the study has secure sums"


@pytest.mark.parametrize(
    "change", [{"clipping_range": 1e6}, {"max_weight": 7.0}, {"threshold": 1}]
)
def test_site_refuses_weaker_secure_sums(tmp_path, change, caplog):
    """Coarser steps would cost more than the bound covers, fewer shares show single sites."""
    study = secure_study()
    grid = InProcessGrid(study, tmp_path)
    push = grid.push_messages

    def tampered(messages):
        for message in messages:
            configs = message.content.config_records.get("secaggplus_configs", {})
            if configs.get("stage") == "setup":
                configs.update(change)
        return push(messages)

    grid.push_messages = tampered
    with pytest.raises(RuntimeError, match="Too few sites|no answer"):
        curate(grid, study, tmp_path / "curator", a_context())
    assert not list(tmp_path.glob("site*/*/state.npz"))


@pytest.mark.parametrize(
    "case, settings",
    [
        ("projections", {}), ("diagonal", {}), ("meta", {}), ("adaptive", {}), ("sampled", {}),
        ("rounds", {"secure_sum": 0}), ("rounds", {"secure_sum": 10**7}),
    ],
)  # fmt: skip
def test_studies_without_secure_sums(case, settings):
    with pytest.raises(ValueError, match="secure_sum"):
        secure_study(case, **settings)


def test_rounding_of_secure_sums_stays_within_the_bound():
    """What a site sends in place of a clipped update is moved by at most twice the bound."""
    rng, size, reach = np.random.default_rng(0), 400, 500.0
    study = secure_study(secure_sum=500, features=size)
    bound = study.room(study.questions["update"].total)
    assert 0.98 < bound < 0.997
    a, others = rng.normal(size=(2, 50, size))
    a /= np.linalg.norm(a, axis=1, keepdims=True)
    a, b = (
        dequantize(quantize([others + bound * v], reach, LEVELS), reach, LEVELS)[0] for v in (a, -a)
    )
    moved = np.linalg.norm(a - b, axis=1)
    assert moved.max() <= 2.0
    assert moved.min() > 2 * bound - 0.01


def test_site_with_more_tasks_than_the_study_says(tmp_path, caplog):
    study = secure_study(secure_sum=2)
    with pytest.raises(RuntimeError, match="Too few sites"):
        curate(InProcessGrid(study, tmp_path), study, tmp_path / "curator", a_context())
    assert "more than the 2 tasks" in caplog.text
