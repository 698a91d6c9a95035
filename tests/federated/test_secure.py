"""Secure sums: Flower's SecAgg+ between the real apps, in one process."""

import json
import math
import re
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from tests.helpers.federated_cases import D, M, and_slow, in_process, rows_of, study_of

pytest.importorskip("flwr", reason="needs Flower: pip install skpmtl[flower]")

from flwr.app import Context, Message, RecordDict
from flwr.common.secure_aggregation.quantization import dequantize, quantize

from skpmtl.exchange.journal import Journal
from skpmtl.exchange.plan import NoiseParties
from skpmtl.federated import records
from skpmtl.federated.client import app
from skpmtl.federated.ledger import Refusal
from skpmtl.federated.secure_sum import check_protocol
from skpmtl.federated.server import curate
from skpmtl.federated.site_config import SiteConfig
from skpmtl.federated.site_noise import LEAST, grid_of
from skpmtl.federated.study import LEVELS
from skpmtl.federated.transcript import Transcript
from skpmtl.privacy.rng import SystemSource
from tests.helpers import federated_grid
from tests.helpers.federated_grid import InProcessGrid, models_of, without_site_1

pytestmark = [
    pytest.mark.filterwarnings("ignore:The noise of this fit is reproducible"),
    pytest.mark.filterwarnings("ignore:relation= has 2 columns for 9 tasks"),
]


def secure_study(case="rounds", **settings):
    return study_of(case, **{"secure_sum": 3, "timeout": 0.5, **settings})


def stage_of(message, of="secaggplus_configs"):
    """Of the protocol, or of="skpmtl_next", that of the next sum, in the same message."""
    return message.content.config_records.get("secure", {}).get(f"{of}/stage")


def change_of(message, of="secaggplus_configs", **change):
    record = message.content.config_records["secure"]
    record.update({f"{of}/{name}": value for name, value in change.items()})


SUMS = ("rounds", "classes", "lengths", "intercept")
STRUCTURES = ("structures, start", "prior", "labels")
META = ("meta", "meta, covariates", "meta, local")
MORE_SUMS = ("algorithm 1", "clusters", "averaging")
MORE_STRUCTURES = ("structures", "structures, labels")


@pytest.mark.parametrize("case", and_slow(SUMS + STRUCTURES, MORE_SUMS + MORE_STRUCTURES))
def test_secure_sums_agree_to_their_rounding(tmp_path, case):
    study = secure_study(case)
    grid = InProcessGrid(study, tmp_path)
    billboard = curate(grid, study, tmp_path / "curator", a_context())
    whole = in_process(study).billboard_
    # The first release: rounding of three sites, and the room that they leave for it.
    votes = case in STRUCTURES + MORE_STRUCTURES
    first = {"lengths": "length"}.get(case, "vote" if votes else "update")
    total, public = study.questions[first].total, {"clip_norm": 1.0}
    step = 2 * study.sum_range(first, public) / LEVELS
    least = 1 if first == "vote" and case in ("prior", "labels") or first == "length" else M
    moved = np.abs(billboard.releases[0] - whole.releases[0]).max()
    smaller = (1.0 - study.room(total)) * M * total.reach(public)
    assert 0 < moved <= (3 * step + smaller) / least + 1e-6 * total.reach(public)
    assert len(billboard.releases) == len(whole.releases)
    assert "secure aggregation" in billboard.report.notes["transport"]
    assert sorted(models_of(tmp_path, study)) == list(range(M))
    # Site by site nothing but masked integers left.
    sent = [r for r in grid.received if "train" in r.metadata.message_type]
    assert len(sent) == 3 * (2 + 2 * len(billboard.releases))  # two a sum, after two for keys
    assert not any(reply.content.array_records for reply in sent)


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
        if node == 1001 and stage_of(message) == "collect_masked_vectors":
            return None
        return reply

    grid = InProcessGrid(study, tmp_path / "a", broken=lost)
    billboard = curate(grid, study, tmp_path / "a" / "curator", a_context())
    for ours, theirs in zip(billboard.releases, expected.releases, strict=True):
        assert_allclose(ours, theirs, atol=1e-4)


def prepared(message):
    """Whether a sum is masked with keys that were made along with the one before."""
    return message.content.config_records.get("secure", {}).get("secaggplus_configs/prepared")


def test_site_that_is_lost_with_keys_made_ahead(tmp_path):
    """Its masks are removed with the shares that the others have; it is back in the next round."""
    study, lost = secure_study(timeout=1.0), []

    def broken(node, message, reply):
        if node == 1001 and prepared(message) and not lost:
            lost.append(len(grid.received))
            return None
        return reply

    grid = InProcessGrid(study, tmp_path, broken=broken)
    billboard = curate(grid, study, tmp_path / "curator", a_context())
    assert len(lost) == 1
    assert billboard.report.notes["contributions"].startswith("3 of 36 were missing")
    whole = in_process(study).billboard_
    assert_allclose(billboard.releases[0], whole.releases[0], rtol=0, atol=1e-4)
    assert np.abs(billboard.releases[1] - whole.releases[1]).max() > 1e-2


def test_site_that_is_started_again_between_two_sums(tmp_path):
    """Its keys are gone: all sites make new ones, and none is left out."""
    study, restarted = secure_study(), []

    class Restarting(InProcessGrid):
        def query(self, node, message):
            if node == 1001 and prepared(message) and len(restarted) < 2:
                restarted.append(len(self.sent))
                restart(self, node)
            return super().query(node, message)

    grid = Restarting(study, tmp_path)
    billboard = curate(grid, study, tmp_path / "curator", a_context())
    assert len(restarted) == 2
    assert billboard.report.notes["contributions"].startswith("0 of 36 were missing")
    assert_allclose(billboard.releases, in_process(study).billboard_.releases, rtol=0, atol=1e-4)


def settings_of(replies, name):
    """What sites sent under a name, in this sum's part of a message and the next sum's."""
    parts = [r.content.config_records["secure"] for r in replies if r.has_content()]
    return [
        part[key] for part in parts for of in ("secaggplus_configs", "skpmtl_next")
        if (key := f"{of}/{name}") in part
    ]  # fmt: skip


def test_keys_and_masks_serve_one_sum(tmp_path):
    study = secure_study()
    grid = InProcessGrid(study, tmp_path)
    billboard = curate(grid, study, tmp_path / "curator", a_context())
    n = len(billboard.releases)
    sent = [r for r in grid.received if "train" in r.metadata.message_type]
    keys = settings_of(sent, "pk1") + settings_of(sent, "pk2")
    assert len(keys) == len(set(keys)) == 3 * 2 * (n + 1)  # those of one sum are left over
    masked = [one[-1] for one in settings_of(sent, "masked_params")]
    assert len(masked) == 3 * n and len(set(masked)) == 3 * n
    # A message that is sent once more, or with another query, masks nothing with used keys.
    collect = [m for m in grid.sent if stage_of(m) == "collect_masked_vectors"]
    for message in (collect[0], collect[-1]):
        reply = grid.query(message.metadata.dst_node_id, message)
        assert reply.has_error()


@pytest.mark.parametrize("stage", ["unmask", "collect_masked_vectors", None])
def test_next_sum_is_not_opened_ahead_of_its_turn(tmp_path, stage, caplog):
    """Shares of its masks would leave without being written down."""
    study, asked = secure_study(), []

    class Lying(InProcessGrid):
        def push_messages(self, messages):
            for message in messages:
                if stage_of(message, "skpmtl_next") == "share_keys" and not asked:
                    asked.append(message)
                    nodes = {"active_nids": [1000, 1001, 1002], "dead_nids": []}
                    change_of(message, "skpmtl_next", stage=stage or "", **nodes)
            return super().push_messages(messages)

    billboard = curate(Lying(study, tmp_path), study, tmp_path / "curator", a_context())
    assert len(asked) == 1 and "a sum ahead of its turn" in caplog.text
    assert_allclose(billboard.releases, in_process(study).billboard_.releases, rtol=0, atol=1e-4)


@pytest.mark.parametrize("change", [{"max_weight": 7.0}, {"threshold": 1}, {"share_num": 2}])
def test_site_refuses_weaker_keys_made_ahead(tmp_path, change, caplog):
    """The curator has new ones made."""
    study, asked = secure_study(), []

    class Lying(InProcessGrid):
        def push_messages(self, messages):
            for message in messages:
                if stage_of(message, "skpmtl_next") == "setup" and len(asked) < 3:
                    asked.append(message)
                    change_of(message, "skpmtl_next", **change)
            return super().push_messages(messages)

    billboard = curate(Lying(study, tmp_path), study, tmp_path / "curator", a_context())
    assert "secure sums over 3 sites" in caplog.text or "No keys for the next" in caplog.text
    assert_allclose(billboard.releases, in_process(study).billboard_.releases, rtol=0, atol=1e-4)


def test_secure_sum_stops_below_its_threshold_and_goes_on(tmp_path):
    study = secure_study()
    grid = InProcessGrid(
        study, tmp_path,
        broken=lambda node, m, r: None if node > 1000 and "train" in m.metadata.message_type else r,
    )  # fmt: skip
    with pytest.raises(RuntimeError, match="Too few sites"):
        curate(grid, study, tmp_path / "curator", a_context())
    billboard = curate(InProcessGrid(study, tmp_path), study, tmp_path / "curator", a_context())
    assert_allclose(billboard.centres, in_process(study).billboard_.centres, atol=1e-4)


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


@pytest.mark.parametrize("change", [{"clipping_range": 1e6}, {"max_weight": 7.0}, {"threshold": 1}])
def test_site_refuses_weaker_secure_sums(tmp_path, change, caplog):
    """Coarser steps would cost more than the bound covers, fewer shares show single sites."""
    study = secure_study()
    grid = InProcessGrid(study, tmp_path)
    push = grid.push_messages

    def tampered(messages):
        stage = "collect_masked_vectors" if "clipping_range" in change else "setup"
        for message in messages:
            if stage_of(message) == stage:
                change_of(message, **change)
        return push(messages)

    grid.push_messages = tampered
    with pytest.raises(RuntimeError, match="Too few sites|no answer"):
        curate(grid, study, tmp_path / "curator", a_context())
    assert not list(tmp_path.glob("site*/*/state.npz"))


@pytest.mark.parametrize(
    "case, settings",
    [
        ("projections", {}), ("diagonal", {}), ("adaptive", {}), ("sampled", {}),
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


def test_site_with_more_tasks_than_the_study_says(tmp_path):
    """The study ends before its first query, since waiting would mend nothing."""
    study = secure_study(secure_sum=2)
    grid = InProcessGrid(study, tmp_path)
    with pytest.raises(ValueError, match="has 3 tasks, more than secure_sum=2"):
        curate(grid, study, tmp_path / "curator", a_context())
    assert not any("train" in message.metadata.message_type for message in grid.sent)


def test_site_refuses_a_sum_over_more_tasks_than_the_study_says(tmp_path, caplog):
    """Whatever the curator takes it to have."""
    study = secure_study(secure_sum=2)

    def fewer(node, message, reply):
        if message.metadata.message_type == "query":
            settings = reply.content.config_records["settings"]
            settings["tasks"] = settings["tasks"][:2]
        return reply

    grid = InProcessGrid(study, tmp_path, broken=fewer)
    with pytest.raises(RuntimeError, match="Too few sites"), pytest.warns(match="Held by no site"):
        curate(grid, study, tmp_path / "curator", a_context())
    assert "more than the 2 tasks of secure_sum" in caplog.text


# ------------------------------------------------------------------ tasks that add their noise
@pytest.mark.parametrize("case", and_slow(META[:1], META[1:]))
def test_sums_of_noisy_updates(tmp_path, case):
    """Nobody sees the update of one task, not even with its noise; sites that have none of the
    tasks that were drawn take part with zeros."""
    study = secure_study(case)
    grid = InProcessGrid(study, tmp_path)
    billboard = curate(grid, study, tmp_path / "curator", a_context())
    whole = in_process(study).billboard_
    step = 2 * study.sum_range("update", {}) / LEVELS
    assert np.abs(billboard.init - whole.init).max() <= 20 * step
    assert "secure aggregation" in billboard.report.notes["transport"]
    assert billboard.report.epsilon == whole.report.epsilon
    for reply in [r for r in grid.received if "train" in r.metadata.message_type]:
        assert not reply.content.array_records


# ---------------------------------------------------------------------- noise of the sites
def noisy_study(case="rounds", **settings):
    return secure_study(case, **{"noise_sites": [3, 2], **settings})


def exact_sums(study, folder, question, sites=(0, 1, 2)):
    """Whole numbers that the sites sent, of what their files have. -> ndarray, Grid"""
    asked, found = study.questions[question.statistic], []
    total, grid = asked.total, grid_of(study, question)
    for k in sites:
        (path,) = (folder / f"site{k}").glob("*/state.npz")
        with np.load(path) as state:
            row = {name: state[f"row.{name}"] for name in asked.shapes}
            vector = np.ravel(total.add(row, question.public, state["positions"]))
            found.append(np.rint(vector * grid.room / grid.step) + state["noise"])
    return np.sum(found, axis=0), grid


NOISY = ("rounds", "prior")
MORE_NOISY = (
    "structures, start", "classes", "lengths", "intercept", "labels", "algorithm 1", "clusters",
)  # fmt: skip


@pytest.mark.parametrize("case", and_slow(NOISY, MORE_NOISY))
def test_release_is_the_sum_of_what_sites_made_noisy(tmp_path, case):
    """To the last bit: whole numbers of steps, the noise of three sites among them."""
    study = noisy_study(case, seed=None)
    grid = InProcessGrid(study, tmp_path)
    billboard = curate(grid, study, tmp_path / "curator", a_context())
    replies = []
    journal = sorted((tmp_path / "curator" / "journal").glob("*.npz"))
    with Journal(tmp_path / "curator" / "journal", {"study": study.text}) as kept:
        while (reply := kept.recall(study.build()._source())) is not None:
            replies.append(reply)
    assert len(replies) == len(journal)
    query = Transcript(study, "", replies[:-1]).steps[-1]
    sums, found = exact_sums(study, tmp_path, query)
    total = study.questions[query.statistic].total
    vector = sums * found.step
    whole = vector if total.whole is None else total.whole(vector)
    (name,) = query.mechanisms
    assert_array_equal(replies[-1][name], whole / query.divide)
    assert sorted(models_of(tmp_path, study)) == list(range(M))
    report = billboard.report
    assert "noise of 3 sites of which that of 2 suffices" in report.notes["transport"]
    assert "one process" not in report.notes["servers"]
    assert any("2 of the sites in every sum are honest" in line for line in report.assumptions)
    assert report.epsilon == study.build().epsilon


def test_noise_of_two_sites_is_that_of_a_trusted_curator():
    """And of symmetric matrices: the triangle, with sqrt(2) off the diagonal, has one std."""
    for case in ("rounds", "prior"):
        study, trusted = noisy_study(case), secure_study(case)
        query, plain = (Transcript(s, "", []).steps[0] for s in (study, trusted))
        while "moment" not in query.mechanisms and case == "prior":
            replies = [{k: np.zeros(m.shape) for k, m in query.mechanisms.items()}]
            query, plain = (Transcript(s, "", replies).steps[-1] for s in (study, trusted))
        (name,) = query.mechanisms
        grid, size = grid_of(study, query), study.questions[query.statistic].total.size
        noise = grid.noise(SystemSource(), 40_000) + grid.noise(SystemSource(), 40_000)
        wanted = plain.mechanisms[name].noise_std * plain.divide
        # 40,000 normals: their std is known within .35 %.
        assert np.std(noise) * grid.step == pytest.approx(wanted, rel=0.022)
        assert grid.noise_std >= LEAST * grid.step
        assert grid.steps(np.zeros(size)).shape == (size,)
        # Neighbouring sums of one site stay within the sensitivity after rounding.
        S, rng = query.mechanisms[name].sensitivity * query.divide, np.random.default_rng(0)
        for _ in range(200):
            v, way = rng.normal(size=(2, size))
            moved = grid.steps(v + S * way / np.linalg.norm(way)) - grid.steps(v)
            assert np.linalg.norm(moved) * grid.step <= S
        assert S * (1 - grid.room) == pytest.approx(np.sqrt(size) * grid.step)


def two_sums(n, h, t):
    """Whether t sites per sum let n - h sites and a curator that lies open two of them: sites
    agree to one set each, and a group of a honest ones and another of h - a are told two sets."""
    return any(min(a, h - a) + (n - h) >= t for a in range(h + 1))


def test_threshold_leaves_one_sum_for_all_numbers_of_sites():
    """All n and h: sites accept what leaves one sum, and noise of h sites, and nothing less."""
    for n in range(3, 41):
        for h in range(2, n):
            least = NoiseParties(n, h).least
            assert h <= least <= n
            for threshold in range(1, n + 1):
                state = {
                    "sample_num": n, "share_num": n, "threshold": threshold, "max_weight": 1.0,
                    "clipping_range": 2.0, "target_range": LEVELS, "mod_range": 2**32,
                }  # fmt: skip
                records_ = {"secaggplus_state": state}
                context = SimpleNamespace(state=SimpleNamespace(config_records=records_))
                try:
                    check_protocol(context, 2.0, least, n)
                    accepted = True
                except Refusal:
                    accepted = False
                assert accepted == (threshold >= h and not two_sums(n, h, threshold))
                state.update(sample_num=n + 1, share_num=n + 1)
                with pytest.raises(Refusal):
                    check_protocol(context, 2.0, least, n)


def test_sites_refuse_a_threshold_that_allows_two_sums(tmp_path, caplog):
    """The curator and one of three sites could open {1, 2, 3} and {2, 3}."""
    study = noisy_study(timeout=0.3)
    (mechanism,) = Transcript(study, "", []).steps[0].mechanisms.values()
    assert grid_of(study, Transcript(study, "", []).steps[0]).least == 3

    class Lying(InProcessGrid):
        def push_messages(self, messages):
            for message in messages:
                if stage_of(message) == "setup":
                    change_of(message, threshold=2)
            return super().push_messages(messages)

    with pytest.raises(RuntimeError, match="Too few sites"):
        curate(Lying(study, tmp_path), study, tmp_path / "curator", a_context())
    assert "secure sums over 3 sites that 2 of them can open" in caplog.text
    assert not list(tmp_path.glob("site*/*/state.npz"))


@pytest.mark.parametrize("n, h, left", [(3, 2, None), (5, 3, 2), (10, 6, 4), (11, 10, 9)])
def test_report_has_what_a_curator_that_lies_can_leave_out(n, h, left):
    study = study_of("rounds", secure_sum=3, noise_sites=[n, h])
    report = in_process(study).privacy_
    (line,) = [line for line in report.assumptions if f"{h} of the sites in every sum" in line]
    found = re.search(r"(\d+) honest ones remain, with whose noise mu is ([\d.]+) times", line)
    if left is None:
        assert found is None
    else:  # all honest ones but those that may be lost, whose noise has a share of the variance
        lost = n - NoiseParties(n, h).least
        assert int(found[1]) == left == h - lost
        assert float(found[2]) == pytest.approx(math.sqrt(h / left), rel=1e-3)


def test_sites_that_suffice_and_a_curator_that_goes_on(tmp_path):
    """Ended after the second of three queries was answered, and before it had the sum; then
    one site is lost, which takes its noise with it."""
    parts = [[1, 4, 6], [0, 2], [3, 5], [7, 8]]
    parameters, asked = {"clip_norm": 1.0, "n_rounds": 3}, []
    study = noisy_study(seed=None, parameters=parameters, noise_sites=[4, 3])

    class Cut(InProcessGrid):
        def push_messages(self, messages):
            asked.extend(m for m in messages if stage_of(m) == "collect_masked_vectors")
            numbers = super().push_messages(messages)
            if len(asked) == 2 * 4:
                raise KeyboardInterrupt
            return numbers

    with pytest.raises(KeyboardInterrupt):
        curate(Cut(study, tmp_path, parts), study, tmp_path / "curator", a_context())
    states = {path: np.load(path)["noise"] for path in tmp_path.glob("site*/*/state.npz")}
    journal = tmp_path / "curator" / "journal"
    assert len(states) == 4 and len(list(journal.glob("*.npz"))) == 1

    def lost(node, message, reply):
        if stage_of(message) != "collect_masked_vectors":
            return reply
        second = len(list(journal.glob("*.npz"))) == 1
        if second:  # the noise of a query is not drawn again
            path = next(p for p in states if f"site{node - 1000}/" in str(p))
            assert_array_equal(np.load(path)["noise"], states[path])
        return reply if second or node != 1001 else None

    grid = InProcessGrid(study, tmp_path, parts, lost)
    billboard = curate(grid, study, tmp_path / "curator", a_context())
    assert len(billboard.releases) == 3
    replies = [{"update": np.ravel(billboard.releases[k])} for k in range(2)]
    query = Transcript(study, "", replies).steps[-1]
    sums, found = exact_sums(study, tmp_path, query, (0, 2, 3))
    assert_array_equal(np.ravel(billboard.releases[2]), sums * found.step / query.divide)
    assert billboard.report.notes["contributions"].startswith("2 of 27 were missing")


def test_noise_of_a_site_is_drawn_once(tmp_path):
    study = noisy_study(seed=None)
    InProcessGrid(study, tmp_path)
    site, _ = SiteConfig(tmp_path / "site0.toml").site(study.digest)
    transcript = Transcript(study, "run", [])
    grid = grid_of(study, transcript.query(0))
    first = site.noisy_total(transcript, 0, grid)
    assert_array_equal(site.noisy_total(transcript, 0, grid), first)
    with pytest.raises(Refusal, match="sites add the noise"):
        site.total(0, "update", transcript.query(0).public, run="run")
    other = Transcript(study, "run", [{"update": np.zeros(3)}])
    assert (site.noisy_total(other, 1, grid) != first).any()


def test_a_sum_is_opened_over_one_set_of_sites(tmp_path, caplog):
    """A second one over other sites would show what those in between sent."""
    study, asked = secure_study(), []

    def cut(node, message, reply):
        if stage_of(message) == "unmask":
            asked.append(node)
            return None  # the curator ends before it hears of it
        return reply

    with pytest.raises(RuntimeError, match="Too few sites"):
        grid = InProcessGrid(study, tmp_path, broken=cut)
        curate(grid, study, tmp_path / "curator", a_context())
    assert len(asked) == 3
    grid = InProcessGrid(study, tmp_path)
    grid.offline = {1001}
    with pytest.warns(UserWarning, match="Held by no site"), pytest.raises(RuntimeError):
        curate(grid, study, tmp_path / "curator", a_context())
    assert not list((tmp_path / "curator" / "journal").glob("*.npz"))

    def lost(node, message, reply):
        masks = stage_of(message) == "collect_masked_vectors"
        return None if node == 1001 and masks else reply

    with pytest.raises(RuntimeError, match="Too few sites"):
        grid = InProcessGrid(study, tmp_path, broken=lost)
        curate(grid, study, tmp_path / "curator", a_context())
    assert "was opened over other sites" in caplog.text
    billboard = curate(InProcessGrid(study, tmp_path), study, tmp_path / "curator", a_context())
    assert_allclose(billboard.releases, in_process(study).billboard_.releases, rtol=0, atol=1e-4)


def restart(grid, node):
    """Its process: what it had in memory is gone."""
    grid.contexts[node] = Context(1, node, dict(grid.contexts[node].node_config), RecordDict(), {})


def opened_of(folder):
    """Lines of ledgers about sums that were opened. -> {site: [[question, nodes]]}"""
    return {
        path.parent.name: [
            [line["question"], line["opened"]]
            for line in map(json.loads, path.read_text().splitlines()) if "opened" in line
        ]
        for path in folder.glob("site*/ledger.jsonl")
    }  # fmt: skip


@pytest.mark.parametrize("after", ["setup", "share_keys"])
def test_site_that_is_lost_before_the_masks_is_left_out(tmp_path, after, caplog):
    """Killed after one of the first stages, and started again: the others open their sum."""
    study = secure_study(timeout=1.0)
    expected = without_site_1(tmp_path / "b", study_of("rounds"))
    done = []

    def killed(node, message, reply):
        if node == 1001 and stage_of(message) == after and len(done) < 4:  # in every round
            restart(grid, node)
            done.append(node)
        return reply

    grid = InProcessGrid(study, tmp_path / "a", broken=killed)
    billboard = curate(grid, study, tmp_path / "a" / "curator", a_context())
    assert len(done) == len(billboard.releases) == 4
    for ours, theirs in zip(billboard.releases, expected.releases, strict=True):
        assert_allclose(ours, theirs, rtol=0, atol=1e-4)
    assert "Site site-1: lost in the secure sum of query 0: " in caplog.text
    assert billboard.report.notes["contributions"].startswith("12 of 36 were missing")


def test_nothing_is_written_before_a_site_can_open_a_sum(tmp_path):
    """A curator of another version asks for shares that do not exist: the next try succeeds."""
    study, asked = secure_study(enrolment=60.0), []

    class Asking(InProcessGrid):
        def push_messages(self, messages):
            for message in messages:
                if stage_of(message) == "unmask" and len(asked) < 3:
                    asked.append(message)
                    change_of(message, dead_nids=[1009])
            return super().push_messages(messages)

    billboard = curate(Asking(study, tmp_path), study, tmp_path / "curator", a_context())
    assert len(asked) == 3
    for openings in opened_of(tmp_path).values():
        assert openings == [[number, [1000, 1001, 1002]] for number in range(4)]
    assert_allclose(billboard.releases, in_process(study).billboard_.releases, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    "change",
    [
        {"dead_nids": [1001]},  # with both of its secrets its own sum could be read
        {"active_nids": [1000, 1001, 1001, 1002]},
        {"active_nids": [1000]},
    ],
)
def test_sums_that_show_a_site_are_not_opened(tmp_path, change, caplog):
    study = secure_study(timeout=0.2)

    class Lying(InProcessGrid):
        def push_messages(self, messages):
            for message in messages:
                if stage_of(message) == "unmask":
                    change_of(message, **change)
            return super().push_messages(messages)

    with pytest.raises(RuntimeError, match="Too few sites"):
        curate(Lying(study, tmp_path), study, tmp_path / "curator", a_context())
    assert not any(opened_of(tmp_path).values())
    assert "a site twice, or without" in caplog.text or "2 are needed" in caplog.text


def test_sum_that_was_opened_is_requested_over_the_same_sites(tmp_path, caplog):
    """The curator ends before it has the sum, and a site that was away is back."""
    parts = [[1, 4, 6], [0, 2], [8], [3, 5, 7]]
    study = secure_study(timeout=1.0)

    def cut(node, message, reply):
        return None if stage_of(message) == "unmask" else reply

    grid = InProcessGrid(study, tmp_path, parts, cut)
    grid.offline = {1002}
    with pytest.warns(UserWarning, match="Held by no site"), pytest.raises(RuntimeError):
        curate(grid, study, tmp_path / "curator", a_context())
    assert opened_of(tmp_path)["site0"] == [[0, [1000, 1001, 1003]]]
    grid = InProcessGrid(study, tmp_path, parts)
    billboard = curate(grid, study, tmp_path / "curator", a_context())
    found = opened_of(tmp_path)
    assert found.pop("site2")[0] == [1, [1000, 1001, 1002, 1003]]
    for openings in found.values():
        assert openings[:2] == [[0, [1000, 1001, 1003]], [1, [1000, 1001, 1002, 1003]]]
    assert billboard.report.notes["contributions"].startswith("1 of 36 were missing")
    assert "over other sites" not in caplog.text


def test_site_that_alone_opened_a_sum_and_is_gone_ends_nothing(tmp_path):
    """One share of four opens nothing: the others, who have sent none, open theirs."""
    parts, lost = [[1, 4, 6], [0, 2], [3, 5], [7, 8]], []
    study = secure_study(timeout=0.5, enrolment=60.0)

    class Losing(InProcessGrid):
        def query(self, node, message):
            if stage_of(message) != "unmask" or len(lost) == 4:
                return super().query(node, message)
            lost.append(node)
            if node == 1001:
                super().query(node, message)
                self.offline.add(node)
            return None

    grid = Losing(study, tmp_path, parts)
    billboard = curate(grid, study, tmp_path / "curator", a_context())
    found = opened_of(tmp_path)
    assert found.pop("site1") == [[0, [1000, 1001, 1002, 1003]]]
    for openings in found.values():
        assert openings == [[number, [1000, 1002, 1003]] for number in range(4)]
    assert billboard.report.notes["contributions"].startswith("8 of 36 were missing")


def test_site_without_what_it_has_opened_opens_nothing(tmp_path):
    study = secure_study()
    InProcessGrid(study, tmp_path)
    site, _ = SiteConfig(tmp_path / "site0.toml").site(study.digest)
    public = Transcript(study, "", []).query(0).public
    site.total(0, "update", public, run="run")
    path = site.folder / "state.npz"
    before = path.read_bytes()
    site.open_sum(0, [1000, 1001, 1002], "run")
    site.open_sum(0, [1002, 1001, 1000], "run")
    with pytest.raises(Refusal, match="opened over other sites"):
        site.open_sum(0, [1000, 1001], "run")
    path.write_bytes(before)
    with pytest.raises(Refusal, match="state.npz is not of the last answer"):
        site.open_sum(0, [1000, 1001], "run")


def test_curator_has_the_mark_of_what_was_opened(tmp_path, caplog):
    """A site that is put back to before it opened a sum, with all its files, takes no part."""
    study = secure_study(timeout=0.3)
    site, old = tmp_path / "site1", tmp_path / "old"

    def cut(node, message, reply):
        if stage_of(message) == "collect_masked_vectors" and node == 1001:
            shutil.copytree(site, old)
        if stage_of(message) == "unmask":
            return reply if node == 1001 else None
        return reply

    grid = InProcessGrid(study, tmp_path, broken=cut)
    with pytest.raises(RuntimeError, match="Too few sites"):
        curate(grid, study, tmp_path / "curator", a_context())
    assert json.loads((tmp_path / "curator" / "marks.json").read_text())["site-1"][0] == 2
    shutil.rmtree(site)
    shutil.copytree(old, site)
    with pytest.warns(UserWarning, match="Held by no site"), pytest.raises(RuntimeError):
        curate(InProcessGrid(study, tmp_path), study, tmp_path / "curator", a_context())
    assert "Site site-1: its books end at line 1 of this study" in caplog.text
    assert not opened_of(tmp_path)["site1"]


def test_site_none_of_whose_tasks_were_drawn_opens_one_sum(tmp_path):
    study = secure_study("meta", seed=None)
    InProcessGrid(study, tmp_path)
    site, _ = SiteConfig(tmp_path / "site0.toml").site(study.digest)
    others = np.setdiff1d(np.arange(M), site.positions)
    public = dict(init=np.zeros((1, D + 1)), round=0)
    assert not site.total(1, "update", public, others, "run").any()
    site.open_sum(1, [1000, 1001, 1002], "run")
    with pytest.raises(Refusal, match="opened over other sites"):
        site.open_sum(1, [1000, 1001], "run")
    assert site.total(1, "update", public, site.positions, "run").any()
    with pytest.raises(Refusal, match="opened over other sites"):
        site.open_sum(1, [1000, 1001], "run")
    site.total(3, "update", public | {"round": 1}, site.positions, "run")
    with pytest.raises(Refusal, match="answered before"):
        site.open_sum(1, [1000, 1001, 1002], "run")


@pytest.mark.parametrize(
    "case, settings, message",
    [
        ("rounds", {"secure_sum": None}, "name secure_sum"),
        ("rounds", {"noise_sites": 3}, "two numbers"),
        ("rounds", {"noise_sites": [3, 3]}, "h from 2"),
        ("rounds", {"noise_sites": [3, 1]}, "h from 2"),
        ("meta", {}, "none for sites to divide"),
        ("diagonal", {}, "secure_sum=3 is for sums"),
    ],
)
def test_studies_without_noise_of_sites(case, settings, message):
    with pytest.raises(ValueError, match=message):
        noisy_study(case, **settings)


def test_noise_that_is_too_little_for_its_grid_is_refused():
    parameters = {"clip_norm": 1.0, "n_rounds": 1, "epsilon": 1e6}
    study = noisy_study(secure_sum=5000, parameters=parameters)
    with pytest.raises(ValueError, match="too little beside sums"):
        grid_of(study, Transcript(study, "", []).steps[0])


# ------------------------------------------------------------------- besides the numbers
def rest_of(message):
    """A message without codes, and with the sizes of its arrays in place of their numbers."""
    if message.has_error():
        return [message.error.reason]
    found = []
    for name, record in sorted(message.content.config_records.items()):
        for key, value in sorted(record.items()):
            if key.endswith("mark"):
                value = json.loads(value)[0]  # lines of the ledger; their code hangs on the time
            pieces = value if isinstance(value, list) else [value]
            if any(isinstance(piece, bytes) for piece in pieces):
                value = [len(piece) for piece in pieces]
            found.append((name, key, value))
    arrays = message.content.array_records.items()
    found += [
        (name, key, a.dtype, a.shape, len(a.data)) for name, r in arrays for key, a in r.items()
    ]
    return found


@pytest.mark.parametrize(
    ("case", "settings"),
    [
        ("meta", {}),
        ("rounds", {"secure_sum": 3}),
        ("rounds", {"secure_sum": 3, "noise_sites": [3, 2]}),
    ],
)
def test_what_a_site_sends_besides_numbers_is_that_of_other_rows(
    tmp_path, case, settings, monkeypatch
):
    """Order, kinds and sizes of the messages do not depend on the rows of a task, or how many."""
    study, found = study_of(case, **settings), []
    X, y, task = rows_of(study)
    mine = np.flatnonzero(task == 4)
    far, few = X.copy(), np.ones(len(y), dtype=bool)
    far[mine], few[mine[1:]] = 1e12, False
    for name, rows in (("all", (X, y, task)), ("one", (far[few], y[few], task[few]))):
        monkeypatch.setattr(federated_grid, "rows_of", lambda study, rows=rows: rows)
        grid = InProcessGrid(study, tmp_path / name)
        curate(grid, study, tmp_path / name / "curator", a_context())
        found.append([rest_of(message) for message in grid.received])
    assert len(found[0]) > 15
    assert found[0] == found[1]
