"""Federated fits: the real Flower apps in one process, over a grid that can be told to fail."""

import dataclasses
import json
import logging
import re
import shutil
import time
from dataclasses import asdict
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from tests.helpers.federated_cases import (
    CASES,
    PARTS,
    D,
    M,
    and_slow,
    in_process,
    released,
    rows_of,
    study_of,
)

pytest.importorskip("flwr", reason="needs Flower: pip install skpmtl[flower]")

from flwr.app import Array, ConfigRecord, Error, Message, RecordDict

from skpmtl import load_billboard
from skpmtl._uncertainty import POSTERIOR
from skpmtl.federated import load_models, records
from skpmtl.federated.client import app
from skpmtl.federated.polling import PollingGrid
from skpmtl.federated.runlog import read_log, standing
from skpmtl.federated.server import Sites, curate, describe
from skpmtl.federated.signing import new_key, read_key
from skpmtl.federated.site_config import SiteConfig
from tests.helpers import federated_grid, posteriors
from tests.helpers.federated_grid import InProcessGrid, models_of, without_site_1

pytestmark = [
    pytest.mark.filterwarnings("ignore:The noise of this fit is reproducible"),
    pytest.mark.filterwarnings("ignore:relation= has 2 columns for 9 tasks"),
]


SIBLINGS = (
    "own units", "start", "prior about a start", "proximal averaging", "relationship, labels",
    "average, labels", "meta, labels",
)  # fmt: skip


@pytest.mark.parametrize("seed", and_slow([3], [11]))
@pytest.mark.parametrize("name", and_slow([n for n in CASES if n not in SIBLINGS], SIBLINGS))
def test_equals_the_fit_in_one_process(tmp_path, name, seed):
    study = study_of(name, seed=seed)
    whole = in_process(study)
    billboard = curate(InProcessGrid(study, tmp_path), study, tmp_path / "curator")
    for ours, theirs in zip(released(billboard), released(whole.billboard_), strict=True):
        assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)
    models = models_of(tmp_path, study)
    assert sorted(models) == list(range(M))
    for task, model in models.items():
        expected = whole.export_task(task)
        assert_allclose(model["coef"], expected["coef"], rtol=1e-10, atol=1e-12)
        assert_allclose(model["intercept"], expected["intercept"], rtol=1e-10, atol=1e-12)
    for name in set(whole._extras) & set(vars(whole)):
        sites = [load_models(path.parent) for path in tmp_path.glob("site*/**/models.npz")]
        found = {t: v for est in sites for t, v in zip(est.tasks_, getattr(est, name), strict=True)}
        assert_allclose([found[t] for t in whole.tasks_], getattr(whole, name), atol=1e-9)
    public = load_billboard(tmp_path / "curator" / "billboard.npz")
    assert public.privacy_.epsilon == whole.privacy_.epsilon
    transport = public.privacy_.notes["transport"]
    assert ("no trusted curator" in transport) == ("Meta" in study.estimator)


# ------------------------------------------------------------------------------- faults
def replace(change):
    """``broken`` of a grid: node 1001 sends other arrays to every query."""

    def broken(node, message, reply):
        if node != 1001 or "train" not in message.metadata.message_type:
            return reply
        settings, arrays = records.read(reply.content)
        arrays = {k: Array(v) for k, v in arrays.items()}
        changed = change(arrays)
        if not isinstance(changed, dict):
            return changed if not callable(changed) else changed(message)
        settings.update({f"array.{k}": v.data for k, v in changed.items()})
        return Message(RecordDict({"settings": ConfigRecord(settings)}), reply_to=message)

    return broken


def lying(array):
    """A record of the right shape around a header of another."""
    data = Array(np.zeros((1 << 8, 3))).data[:200]
    return Array("float64", tuple(array.shape), "numpy.ndarray", data)


GARBAGE = {
    "nan": lambda a: {k: Array(np.full(v.shape, np.nan)) for k, v in a.items()},
    "inf": lambda a: {**a, "update": Array(np.full(a["update"].shape, -np.inf))},
    "shape": lambda a: {k: Array(np.zeros((7, 7))) for k in a},
    "scalar": lambda a: {k: Array(np.array(1.0)) for k in a},
    "missing name": lambda a: {},
    "other name": lambda a: {**a, "rows": a["update"]},
    "single precision": lambda a: {k: Array(v.numpy().astype("f4")) for k, v in a.items()},
    "text": lambda a: {k: Array("float64", tuple(v.shape), "x", b"no") for k, v in a.items()},
    "no header": lambda a: {
        k: Array("float64", tuple(v.shape), "numpy.ndarray", b"no") for k, v in a.items()
    },
    "lie": lambda a: {k: lying(v) for k, v in a.items()},
    "huge": lambda a: {**a, "update": Array(np.zeros((len(a["update"].numpy()), 1 << 18)))},
    "silence": lambda a: None,
    "error": lambda a: lambda message: Message(Error(code=2, reason="?"), reply_to=message),
    "nothing": lambda a: lambda message: Message(RecordDict(), reply_to=message),
    "other question": lambda a: (
        lambda message: Message(
            records.write({k: v.numpy() for k, v in a.items()}, status="answered", number=99),
            reply_to=message,
        )
    ),
}


@pytest.fixture(scope="module")
def two_sites(tmp_path_factory):
    """The billboard of the rounds when the tasks of site 1 send nothing."""
    return without_site_1(tmp_path_factory.mktemp("two"), study_of("rounds", **TWO_ROUNDS))


TWO_ROUNDS = {"parameters": {"clip_norm": 1.0, "n_rounds": 2}}


@pytest.mark.parametrize("name", and_slow(["prior"], ["structures", "own units", "meta"]))
def test_covariances_leave_no_site(tmp_path, name, caplog, capsys):
    """Messages to and from a site, its books, logs, and all that the curator has: no number of a
    posterior is there, as text or as bytes. Only the site's models have it."""
    study = study_of(name, parameters={**CASES[name][1], "uncertainty": True})
    grid = InProcessGrid(study, tmp_path)
    with caplog.at_level(logging.DEBUG):
        curate(grid, study, tmp_path / "curator")
    paths = [path for path in tmp_path.rglob("*") if path.is_file()]
    own = [path for path in paths if path.name.startswith("models.")]
    text = [caplog.text, *capsys.readouterr()]
    binary = [path.read_bytes() for path in paths if path not in own]
    for path in {path for path in paths if path.suffix == ".npz"}.difference(own):
        with np.load(path) as arrays:
            assert not set(POSTERIOR) & set(arrays.files)
            binary += [arrays[key].tobytes() for key in arrays.files]
    for message in [*grid.sent, *grid.received]:
        for record in message.content.config_records.values():
            text += [str(value) for value in record.values()]
        for record in message.content.array_records.values():
            binary += [array.numpy().tobytes() for array in record.values()]
    text = "\n".join([*text, *(part.decode(errors="replace") for part in binary)])
    binary, secrets = b"\n".join(binary), 0
    for path in own:
        if path.suffix != ".npz":
            continue
        est = load_models(path.parent)
        with np.load(path) as arrays:  # where they are, they are found in this way
            assert est.covariance_.tobytes() in b"".join(arrays[k].tobytes() for k in arrays.files)
        secrets += posteriors.search(est, text, binary)
    assert secrets > 10


@pytest.mark.parametrize("kind", GARBAGE)
def test_garbage_counts_as_nothing(tmp_path, kind, caplog, two_sites):
    """As if the tasks of the site were there and sent zero; the denominator stays."""
    study = study_of("rounds", timeout=0.3, **TWO_ROUNDS)
    grid = InProcessGrid(study, tmp_path, broken=replace(GARBAGE[kind]))
    billboard = curate(grid, study, tmp_path / "curator")
    for ours, theirs in zip(billboard.releases, two_sites.releases, strict=True):
        assert_array_equal(ours, theirs)
    stated = two_sites.report
    if kind in ("nan", "inf"):  # they came: that they are not finite follows from rows
        said = stated.notes["contributions"].replace("6 of 18", "0 of 18")
        stated = dataclasses.replace(stated, notes={**stated.notes, "contributions": said})
    assert billboard.report == stated
    if kind not in ("nan", "inf"):  # these are numbers, which the sum takes for zero
        assert "Site site-1: " in caplog.text


@pytest.mark.parametrize(
    "name, kind",
    and_slow(
        [("lengths", "nan"), ("meta", "nan"), ("labels", "silence"), ("mean model", "silence")],
        [("labels", "nan"), ("mean model", "nan"), ("lengths", "silence"), ("meta", "silence"),
         *product(("prior", "intercept"), ("nan", "silence"))],
    ),
)  # fmt: skip
def test_garbage_in_other_statistics(tmp_path, name, kind):
    study = study_of(name, timeout=0.2)
    grid = InProcessGrid(study, tmp_path / "a", broken=replace(GARBAGE[kind]))
    billboard = curate(grid, study, tmp_path / "a" / "curator")
    expected = without_site_1(tmp_path / "b", study)
    for ours, theirs in zip(released(billboard), released(expected), strict=True):
        assert_array_equal(ours, theirs)


@pytest.mark.parametrize("value", and_slow([1e300], [-1e12, 5.0]))
def test_large_numbers_move_a_release_within_the_bound(tmp_path, value):
    study = study_of("rounds")

    def first(folder, broken=None):
        grid = InProcessGrid(study, folder, broken=broken)
        return curate(grid, study, folder / "curator").releases[0]

    honest = first(tmp_path / "a")
    large = replace(lambda a: {**a, "update": Array(np.full(a["update"].shape, value))})
    moved = np.linalg.norm(first(tmp_path / "b", large) - honest)
    assert 0 < moved <= len(PARTS[1]) * 2.0 / M * (1 + 1e-6)


@pytest.mark.parametrize(
    "privacy, value",
    and_slow(
        [("task-global", np.nan), ("local", 1e300)],
        [*product(["task-global"], [np.inf, 1e300, -1e12]),
         *product(["local"], [np.nan, np.inf, -1e12])],
    ),
)  # fmt: skip
def test_one_site_moves_an_initialisation_within_the_bound(tmp_path, privacy, value):
    """Twice the length that the report names for each of its tasks, over all of a round."""
    parameters = {"epsilon": 5.0, "privacy": privacy, "tasks_per_round": "all"}
    study = study_of("meta", parameters=parameters)

    def fit(folder, broken=None):
        return curate(InProcessGrid(study, folder, broken=broken), study, folder / "curator")

    honest = fit(tmp_path / "a")
    assert_allclose(honest.init, in_process(study).billboard_.init, rtol=1e-12)
    garbage = replace(lambda a: {"update": Array(np.full(a["update"].shape, value))})
    moved = np.linalg.norm(fit(tmp_path / "b", garbage).init - honest.init)
    longest = float(honest.report.notes["transport"].split("longer than ")[1])
    rate = honest.report.public_inputs["meta_learning_rate"]
    assert 0 < moved <= rate * len(PARTS[1]) * 2.0 * longest / M * (1 + 1e-5)


def test_no_answer_at_all_releases_nothing(tmp_path):
    study = study_of("rounds", timeout=0.2)

    def silent(node, message, reply):
        return None if "train" in message.metadata.message_type else reply

    with pytest.raises(RuntimeError, match="No site at all"):
        curate(InProcessGrid(study, tmp_path, broken=silent), study, tmp_path / "curator")
    assert not list((tmp_path / "curator" / "journal").glob("*.npz"))
    billboard = curate(InProcessGrid(study, tmp_path), study, tmp_path / "curator")
    for ours, theirs in zip(billboard.releases, in_process(study).billboard_.releases, strict=True):
        assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "name, answered",
    and_slow(
        [("rounds", False), ("meta", False), ("stateful", True), ("prior", True)],
        [("rounds", True), ("meta", True), ("stateful", False), ("prior", False),
         *product(("algorithm 1", "labels"), (False, True))],
    ),
)  # fmt: skip
def test_restarted_curator_repeats_nothing(tmp_path, name, answered):
    """Cut off at a query, before or after the sites answered it; also if only some did."""
    study, asked = study_of(name), []

    class Cut(InProcessGrid):
        def push_messages(self, messages):
            if "train" in messages[0].metadata.message_type:
                asked.append(len(messages))
                if len(asked) == 3:
                    if answered:
                        super().push_messages(messages[:2])
                    raise KeyboardInterrupt
            return super().push_messages(messages)

    with pytest.raises(KeyboardInterrupt):
        curate(Cut(study, tmp_path), study, tmp_path / "curator")
    kept = {p.name: p.read_bytes() for p in (tmp_path / "curator" / "journal").glob("*.npz")}
    grid = InProcessGrid(study, tmp_path)
    billboard = curate(grid, study, tmp_path / "curator")
    for file, content in kept.items():
        assert (tmp_path / "curator" / "journal" / file).read_bytes() == content
    whole = in_process(study)
    for ours, theirs in zip(released(billboard), released(whole.billboard_), strict=True):
        assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)
    for task, model in models_of(tmp_path, study).items():
        assert_allclose(model["coef"], whole.export_task(task)["coef"], rtol=1e-10, atol=1e-12)
    # Once more: the budget is spent, nothing is asked any more.
    again = InProcessGrid(study, tmp_path)
    curate(again, study, tmp_path / "curator")
    assert {m.metadata.message_type for m in again.sent} == {"query", "evaluate"}


def test_second_run_of_a_study_is_refused_by_the_sites(tmp_path, caplog):
    study = study_of("rounds")
    curate(InProcessGrid(study, tmp_path), study, tmp_path / "curator")
    with pytest.raises(RuntimeError, match="No site at all"):
        curate(InProcessGrid(study, tmp_path), study, tmp_path / "other curator")
    assert "second run" in caplog.text


def test_second_run_of_one_round_is_refused(tmp_path, caplog):
    """Its only query is the last one that the sites answered, and the noise would be new."""
    study = study_of("rounds", parameters={"n_rounds": 1}, seed=None)
    curate(InProcessGrid(study, tmp_path), study, tmp_path / "curator")
    with pytest.raises(RuntimeError, match="No site at all"):
        curate(InProcessGrid(study, tmp_path), study, tmp_path / "other curator")
    assert "another journal" in caplog.text


def test_report_says_who_sees_the_participants():
    study = study_of("rounds")
    billboard = in_process(study).billboard_
    assert "traffic" not in describe(billboard, study).notes["transport"]
    plan = study.build()._plan(study.population())
    plan.sampling = "poisson"
    billboard.report = dataclasses.replace(billboard.report, sampling=plan.scheme())
    assert "traffic of the sites" in describe(billboard, study).notes["transport"]


def test_duplicated_question_gets_the_same_answer(tmp_path):
    study = study_of("meta", seed=None)
    grid = InProcessGrid(study, tmp_path)
    answers = []

    def twice(node, message, reply):
        if "train" in message.metadata.message_type:
            again = app(message, grid.contexts[node])
            answers.append([records.read(r.content)[1]["update"] for r in (reply, again)])
        return reply

    grid.broken = twice
    curate(grid, study, tmp_path / "curator")
    assert answers
    for first, second in answers:
        assert_array_equal(first, second)


@pytest.mark.parametrize("change", [{"epsilon": 100.0}, {"clip_norm": 50.0}])
def test_site_with_another_study_does_not_answer(tmp_path, change, caplog):
    """A curator cannot make sites take part in anything that their copy does not say."""
    study = study_of("rounds")
    grid = InProcessGrid(study, tmp_path)
    other = study_of("rounds", parameters={"n_rounds": 4, **change})
    (tmp_path / "study.json").write_text(json.dumps(asdict(other)))
    with pytest.warns(UserWarning, match="Held by no site"), pytest.raises(RuntimeError):
        curate(grid, other.__class__(**{**asdict(study), "enrolment": 0.1}), tmp_path / "curator")
    assert "another study" in caplog.text
    assert not list(tmp_path.glob("site*/*/state.npz"))


def test_site_with_another_study_in_between_says_which(tmp_path):
    """Also in answer to a query, since a site that is back at once is not enrolled again."""
    study = study_of("rounds")

    def broken(node, message, reply):
        if node == 1001 and "train" in message.metadata.message_type:
            other = asdict(study_of("rounds", name="other"))
            (tmp_path / "other.json").write_text(json.dumps(other))
            path = tmp_path / "site1.toml"
            path.write_text(path.read_text().replace("study.json", "other.json"))
        return reply

    curate(InProcessGrid(study, tmp_path, broken=broken), study, tmp_path / "curator")
    reasons = {e["reason"] for e in read_log(tmp_path / "curator") if e["event"] == "trouble"}
    assert {r.split(": ", 2)[2] for r in reasons} == {
        "it takes part in ['other'], and not in 'test': add the study"
    }


def test_two_sites_with_one_task(tmp_path):
    study = study_of("rounds")
    with pytest.raises(ValueError, match="Every task belongs to one site"):
        curate(InProcessGrid(study, tmp_path, [[1, 2], [2, 3]]), study, tmp_path / "curator")


@pytest.mark.parametrize("names", [[77], ["a"], [1, 1]])
def test_names_that_the_study_does_not_have(tmp_path, names):
    study = study_of("rounds")

    def broken(node, message, reply):
        if node == 1001 and message.metadata.message_type == "query":
            content = records.write(status="answered", tasks=names)
            return Message(content, reply_to=message)
        return reply

    with pytest.raises((ValueError, TypeError)):
        curate(InProcessGrid(study, tmp_path, broken=broken), study, tmp_path / "curator")


@pytest.mark.parametrize("name", ["algorithm 1", "meta", "labels"])
def test_site_that_comes_back_goes_on(tmp_path, name):
    """A SuperNode that is started again has another number, and its state in its folder."""
    study, grid = study_of(name), None

    class Restarted(InProcessGrid):
        def push_messages(self, messages):
            done = [m for m in self.sent if "train" in m.metadata.message_type]
            out = super().push_messages(messages)
            if len(done) >= 3 and 1001 not in self.offline:
                self.offline.add(1001)
                self.contexts[2001] = self.contexts[1001]
            return out

    grid = Restarted(study, tmp_path)
    billboard = curate(grid, study, tmp_path / "curator")
    assert 2001 in {m.metadata.dst_node_id for m in grid.sent}
    whole = in_process(study)
    for ours, theirs in zip(released(billboard), released(whole.billboard_), strict=True):
        assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)


def test_newcomer_cannot_take_the_tasks_of_another_site(tmp_path, caplog):
    study = study_of("rounds")

    class Intruder(InProcessGrid):
        def push_messages(self, messages):
            self.contexts.setdefault(3000, self.contexts[1001])
            return super().push_messages(messages)

    grid = Intruder(study, tmp_path)
    curate(grid, study, tmp_path / "curator")
    asked = [m.metadata.dst_node_id for m in grid.sent if "train" in m.metadata.message_type]
    assert set(asked) == {1000, 1001, 1002}
    assert "it was not taken in: Tasks of two sites" in caplog.text


def test_errors_of_a_site_stay_in_its_log(tmp_path, caplog):
    """Flower would send the text of an exception, which may show rows."""
    study = study_of("rounds")
    grid = InProcessGrid(study, tmp_path)
    np.savez(tmp_path / "1.npz", X=np.full((2, D), np.nan), y=[0.0, 0.0], task=[2, 8])
    replies = []
    grid.broken = lambda node, message, reply: replies.append(reply) or reply
    with pytest.warns(UserWarning, match="Held by no site"), caplog.at_level(logging.ERROR):
        curate(grid, study, tmp_path / "curator")
    failed = [r.content for r in replies if r.content["settings"]["status"] == "failed"]
    assert failed
    told = {"status": "failed", "reason": "ValueError; the log of the site has more"}
    assert all(dict(c["settings"]) == {**told, "site": "site-1"} and len(c) == 1 for c in failed)
    assert "contains NaN" in caplog.text


def test_who_is_asked_learns_no_other_participants(tmp_path):
    """Under sampling a site sees its own tasks only, and sites that are not drawn see nothing."""
    study = study_of("sampled")
    grid = InProcessGrid(study, tmp_path)
    curate(grid, study, tmp_path / "curator")
    questions = [m for m in grid.sent if "train" in m.metadata.message_type]
    for message in questions:
        held = PARTS[message.metadata.dst_node_id - 1000]
        assert set(message.content["settings"]["positions"]) <= set(held)
    assert len(questions) < 6 * 3


def test_restarted_sites_are_sent_all_releases(tmp_path):
    """Site 1 lacks them after every third query, and two of its answers are lost."""
    study, counts = study_of("structures"), [0]

    def broken(node, message, reply):
        if node == 1001 and "train" in message.metadata.message_type:
            counts[0] += 1
            if counts[0] % 3 == 0:
                SiteConfig._kept.pop(str(tmp_path / "site1.toml"))
            if counts[0] in (5, 15):
                return None
        return reply

    grid = InProcessGrid(study, tmp_path, broken=broken)
    billboard = curate(grid, study, tmp_path / "curator")
    for ours, theirs in zip(
        released(billboard), released(in_process(study).billboard_), strict=True
    ):
        assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)
    statuses = [r.content["settings"].get("status") for r in grid.received]
    assert "lacking" in statuses and not {"refused", "failed"} & set(statuses)
    first = [
        m.content["settings"]["first"] for m in grid.sent
        if m.metadata.dst_node_id == 1000 and "train" in m.metadata.message_type
    ]  # fmt: skip
    assert first == [0, *range(len(first) - 1)]  # of which each is sent once


@pytest.mark.parametrize(
    "change, message",
    [
        ({"statistic": "vote"}, "query 2 is 'vote', and the study has '\\w+' there"),
        ({"clip_norm": 2.0}, "clip_norm=2.0, and the study plans"),
        ({"number": 3}, "query 3 after 2 releases"),
    ],
)
def test_query_that_does_not_follow_from_releases_is_refused(tmp_path, change, message, caplog):
    """By the site, in its log, with both; and the log of the run has the reason."""
    study = study_of("lengths" if "clip_norm" in change else "structures")

    class Dishonest(Sites):
        def _query(self, query, first):
            if self.journal.place < 2:
                return super()._query(query, first)
            public = {**query.public, **{k: v for k, v in change.items() if k == "clip_norm"}}
            settings, arrays = super()._query(dataclasses.replace(query, public=public), first)
            return settings | {k: v for k, v in change.items() if k != "clip_norm"}, arrays

    with pytest.MonkeyPatch.context() as patch, caplog.at_level(logging.ERROR):
        patch.setattr("skpmtl.federated.server.Sites", Dishonest)
        with pytest.raises(RuntimeError, match=message):
            curate(InProcessGrid(study, tmp_path), study, tmp_path / "curator")
    assert re.search(f"Refused: .*{message}", caplog.text)
    assert len(list((tmp_path / "curator" / "journal").glob("*.npz"))) == 2
    reasons = [e["reason"] for e in read_log(tmp_path / "curator") if e["event"] == "trouble"]
    assert any(re.search(message, reason) for reason in reasons)


def test_large_arrays_are_records_of_their_own():
    small, large = np.arange(6.0).reshape(2, 3), np.arange(90_000.0).reshape(300, 300)
    content = records.write({"a": small, "b": large}, number=3)
    assert list(content.array_records["arrays"]) == ["b"]
    settings, found = records.read(content, {"a": (2, 3), "b": (300, 300)})
    assert settings == {"number": 3}
    assert_array_equal(found["a"], small)
    assert_array_equal(found["b"], large)
    with pytest.raises(ValueError, match="is no array"):
        records.read(records.write({"a": small}, **{"array.c": "text"}))


def test_one_curator_at_a_time(tmp_path):
    study, errors = study_of("rounds"), []
    grid = InProcessGrid(study, tmp_path)

    def second(node, message, reply):
        with pytest.raises(ValueError, match="Another process uses this journal") as error:
            curate(InProcessGrid(study, tmp_path), study, tmp_path / "curator")
        errors.append(error)
        return reply

    grid.broken = second
    curate(grid, study, tmp_path / "curator")
    assert errors


def test_lost_tasks_are_not_taken_together_with_those_of_others(tmp_path, caplog):
    """And a site that comes back under its old number still has its own."""
    study = study_of("rounds")

    class Intruder(InProcessGrid):
        def get_node_ids(self):
            questions = sum("train" in m.metadata.message_type for m in self.sent)
            self.offline = {1001} if questions == 3 else set()
            if questions == 3:
                self.contexts.setdefault(3000, self.contexts[1001])
            return super().get_node_ids()

        def push_messages(self, messages):
            numbers = super().push_messages(messages)
            for message, number in zip(messages, numbers, strict=True):
                if message.metadata.dst_node_id == 3000:
                    content = records.write(status="answered", tasks=[*PARTS[0], *PARTS[1]])
                    self.replies[number] = Message(content, reply_to=message)
            return numbers

    grid = Intruder(study, tmp_path)
    curate(grid, study, tmp_path / "curator")
    asked = [m.metadata.dst_node_id for m in grid.sent if "train" in m.metadata.message_type]
    assert 3000 not in asked
    assert asked.count(1001) >= 1 + 2  # before it was away, and after
    assert "it was not taken in: Tasks of two sites" in caplog.text


def events(tmp_path, kind="question"):
    return [e for e in read_log(tmp_path / "curator") if e["event"] == kind]


def test_silent_site_is_not_waited_for_again(tmp_path):
    """It costs the time of one query, is skipped, and taken back when it shows itself."""
    study = study_of("rounds", parameters={"clip_norm": 1.0, "n_rounds": 6}, timeout=2.0)
    trains = []

    class Dropped(InProcessGrid):
        """The connection of node 1001 is gone during queries 1 to 3; it stays registered, and
        what it is sent waits for it."""

        kept = []

        def push_messages(self, messages):
            trains.extend(m for m in messages if "train" in m.metadata.message_type)
            numbers = super().push_messages(messages)
            self.kept += [
                (number, message) for number, message in zip(numbers, messages, strict=True)
                if message.metadata.dst_node_id in self.offline
            ]  # fmt: skip
            return numbers

        def get_node_ids(self):
            self.offline = {1001} if 1 <= len(events(tmp_path)) <= 3 else set()
            while self.kept and not self.offline:
                number, message = self.kept.pop(0)
                self.replies[number] = self.query(1001, message)
            return list(self.contexts)

    billboard = curate(Dropped(study, tmp_path), study, tmp_path / "curator")
    found = events(tmp_path)
    names = ["site-0", "site-1", "site-2"]
    assert [e["answered"] == names for e in found] == [True, False, False, False, True, True]
    assert found[1]["asked"] == names
    assert found[2]["asked"] == ["site-0", "site-2"]
    assert found[1]["seconds"] >= 2.0
    assert max(found[2]["seconds"], found[3]["seconds"]) < 2.0
    asked = [m.metadata.dst_node_id for m in trains]
    assert asked.count(1001) == 1 + 3 + 2  # three times what may have been lost on the way
    assert billboard.report.notes["contributions"].startswith("9 of 54 were missing")


def test_lost_question_is_sent_again(tmp_path):
    study, lost = study_of("rounds", timeout=6.0), []
    whole = in_process(study).billboard_  # compiles loops, which takes longer than the timeout

    def broken(node, message, reply):
        if node == 1001 and "train" in message.metadata.message_type and len(lost) < 2:
            lost.append(message)
            return None
        return reply

    billboard = curate(InProcessGrid(study, tmp_path, broken=broken), study, tmp_path / "curator")
    for ours, theirs in zip(billboard.releases, whole.releases, strict=True):
        assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)
    assert billboard.report.notes["contributions"].startswith("0 of 36")


def test_query_is_not_sent_again_after_its_time():
    """Where a look for replies took longer; Flower refuses messages whose time is over."""
    sent = []

    def push(messages):
        sent.extend(messages)
        return [f"m{len(sent)}"]

    slow = SimpleNamespace(push_messages=push, pull_messages=lambda _: time.sleep(0.3) or [])
    message = Message(records.write(), dst_node_id=7, message_type="train", ttl=0.2)
    grid = PollingGrid(slow)
    assert grid.exchange([message], timeout=0.2) == [None]
    assert all(one.metadata.ttl > 0 for one in sent) and len(sent) == 1
    assert grid.silent == {7: "no reply in 0.2 s"}


def test_late_and_doubled_replies(tmp_path):
    """Every reply comes twice, and the first one after the query was sent again."""
    study = study_of("rounds", timeout=0.6)

    class Postman(InProcessGrid):
        def pull_messages(self, numbers):
            now, asked = time.monotonic(), {m.metadata.message_id: m for m in self.sent}
            found = [
                n for n in numbers
                if asked[n].metadata.message_type != "train.answer"
                or now - self.since.setdefault(n, now) > 0.25
            ]  # fmt: skip
            return [self.replies[n] for n in found for _ in range(2)]

    grid = Postman(study, tmp_path)
    grid.since = {}
    billboard = curate(grid, study, tmp_path / "curator")
    assert_allclose(
        billboard.releases, in_process(study).billboard_.releases, rtol=1e-12, atol=1e-12
    )
    asked = [m for m in grid.sent if m.metadata.message_type == "train.answer"]
    assert len(asked) >= 2 * 3 * len(billboard.releases)  # all of them were sent again


def test_run_waits_until_some_site_is_back(tmp_path):
    study, back = study_of("rounds", timeout=0.2, enrolment=5.0), []

    def broken(node, message, reply):
        if "train" in message.metadata.message_type:
            back.append(node)
            return reply if len(back) > 12 else None
        return reply

    billboard = curate(InProcessGrid(study, tmp_path, broken=broken), study, tmp_path / "curator")
    for ours, theirs in zip(billboard.releases, in_process(study).billboard_.releases, strict=True):
        assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "name", and_slow(["lengths", "published", "average"], ["rounds", "prior", "diagonal"])
)
def test_epsilon_so_far_ends_at_that_of_the_report(tmp_path, name):
    study = study_of(name)
    billboard = curate(InProcessGrid(study, tmp_path), study, tmp_path / "curator")
    found = [e["epsilon"] for e in events(tmp_path)]
    assert (np.diff(found) > 0).all()
    assert_allclose(found[-1], billboard.report.epsilon, rtol=1e-6)
    assert standing(tmp_path / "curator")[0] == 0


def test_numbers_that_count_as_zero_are_in_the_log(tmp_path, caplog):
    study = study_of("rounds")
    nan = replace(GARBAGE["nan"])
    billboard = curate(InProcessGrid(study, tmp_path, broken=nan), study, tmp_path / "curator")
    assert [e["zeroed"] for e in events(tmp_path)] == [3, 3, 3, 3]
    assert "3 not finite and counted as zero" in caplog.text
    assert billboard.report.notes["contributions"].startswith("0 of 36 were missing")
    secret = study_of("sampled", name="secret")
    other = curate(InProcessGrid(secret, tmp_path / "b"), secret, tmp_path / "b" / "curator")
    assert "contributions" not in other.report.notes  # who takes part is not told


def test_the_report_does_not_depend_on_what_is_finite(tmp_path, monkeypatch):
    """A task of one row has no scale of its features, and says so; others must not learn it."""
    study, found = study_of("pooled"), []
    X, y, task = rows_of(study)
    for name, keep in (("all", task >= 0), ("one", (task != 4) | (np.cumsum(task == 4) == 1))):
        monkeypatch.setattr(federated_grid, "rows_of", lambda study, k=keep: (X[k], y[k], task[k]))
        grid = InProcessGrid(study, tmp_path / name)
        found.append(curate(grid, study, tmp_path / name / "curator").report)
    assert sum(event["zeroed"] for event in events(tmp_path / "one")) > 0
    assert found[0].notes["contributions"] == found[1].notes["contributions"]
    assert "which tasks have rows" in str(found[0].assumptions)


def test_only_the_curator_that_the_site_knows_is_answered(tmp_path, caplog):
    pytest.importorskip("cryptography")
    study = study_of("rounds")
    public = new_key(tmp_path / "curator.key")
    new_key(tmp_path / "other.key")
    grid = InProcessGrid(study, tmp_path)
    for path in tmp_path.glob("site*.toml"):
        path.write_text(f'{path.read_text()}curator = "{public}"\n')
    for key in (None, read_key(tmp_path / "other.key")):
        with pytest.warns(UserWarning, match="Held by no site"), pytest.raises(RuntimeError):
            curate(grid, study, tmp_path / "intruder", key=key)
    assert "not signed by the curator" in caplog.text
    assert not list(tmp_path.glob("site*/*/state.npz"))
    billboard = curate(grid, study, tmp_path / "curator", key=read_key(tmp_path / "curator.key"))
    assert_array_equal(billboard.releases, in_process(study).billboard_.releases)
    ledger = (tmp_path / "site0" / "ledger.jsonl").read_text().splitlines()
    assert {json.loads(line)["curator"] for line in ledger} == {public}


def test_site_without_its_books_is_not_asked_again(tmp_path, caplog):
    """It would draw new noise for what it has answered; the curator has the marks of its books."""
    study = study_of("meta", seed=None, enrolment=0.5)

    class Cut(InProcessGrid):
        def push_messages(self, messages):
            if len(events(tmp_path)) == 2:
                raise KeyboardInterrupt
            return super().push_messages(messages)

    with pytest.raises(KeyboardInterrupt):
        curate(Cut(study, tmp_path), study, tmp_path / "curator")
    lost = events(tmp_path)[-1]["answered"][-1]
    shutil.rmtree(tmp_path / lost.replace("-", ""))
    grid = InProcessGrid(study, tmp_path)
    with pytest.warns(UserWarning, match="Held by no site"):
        curate(grid, study, tmp_path / "curator")
    assert f"Site {lost}: its books end at line 0 of this study" in caplog.text
    node = 1000 + int(lost[-1])
    assert not [
        m
        for m in grid.sent
        if m.metadata.dst_node_id == node and "train" in m.metadata.message_type
    ]


@pytest.mark.parametrize("damage", [None, "", "[]", '{"site-0": [1]}'])
def test_curator_without_its_marks_asks_nobody(tmp_path, damage):
    """It could not know which of the sites has books from before."""
    study = study_of("rounds")
    curate(InProcessGrid(study, tmp_path), study, tmp_path / "curator")
    path = tmp_path / "curator" / "marks.json"
    count = 4
    assert {mark[0] for mark in json.loads(path.read_text()).values()} == {count}
    path.unlink()
    if damage is not None:
        path.write_text(damage)
    grid = InProcessGrid(study, tmp_path)
    with pytest.raises(ValueError, match="marks.json is missing or damaged"):
        curate(grid, study, tmp_path / "curator")
    assert not grid.sent
    path.write_text("{}")
    curate(grid, study, tmp_path / "curator")


def test_site_from_a_backup_counts_as_silent_until_it_is_mended(tmp_path, caplog):
    """Its folder is put back while the curator runs: the next query carries the newer mark."""
    study = study_of("rounds")
    site, old, new = (tmp_path / name for name in ("site1", "old", "new"))
    done = []

    def swapped(node, message, reply):
        if node == 1001 and message.metadata.message_type == "train.answer":
            done.append(message)
            if len(done) == 1:
                shutil.copytree(site, old)
            if len(done) == 2:
                shutil.copytree(site, new)
                shutil.rmtree(site)
                shutil.copytree(old, site)
            if len(done) == 3:
                shutil.rmtree(site)
                shutil.copytree(new, site)
        return reply

    billboard = curate(InProcessGrid(study, tmp_path, broken=swapped), study, tmp_path / "curator")
    assert len(done) == 4
    assert "older books were restored" in caplog.text
    found = [event for event in events(tmp_path) if event["missing"]]
    assert len(found) == 1
    assert "site-1" not in found[0]["answered"]
    assert any("never restored" in line for line in billboard.report.assumptions)


def test_report_says_of_which_questions_the_log_was_lost(tmp_path):
    study = study_of("rounds")
    billboard = curate(InProcessGrid(study, tmp_path), study, tmp_path / "curator")
    assert billboard.report.notes["contributions"].endswith("counted as zero")
    path = tmp_path / "curator" / "run.jsonl"
    lines = path.read_text().splitlines(True)
    path.write_text("".join(line for line in lines if '"question": 2' not in line))
    billboard = curate(InProcessGrid(study, tmp_path), study, tmp_path / "curator")
    assert billboard.report.notes["contributions"].startswith("0 of 27 were missing")
    assert "; of 1 queries the log of the run was lost" in billboard.report.notes["contributions"]
