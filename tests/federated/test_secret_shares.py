"""Servers in place of a trusted curator: the real apps, in one process."""

import json
import shutil

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from skpmtl.exchange import servers
from skpmtl.exchange.journal import Journal
from skpmtl.federated import records
from skpmtl.federated.curator import curate
from skpmtl.federated.refusals import Lacking, Refusal
from skpmtl.federated.secret_shares import new_share_key, seal
from skpmtl.federated.site_config import SiteConfig
from skpmtl.federated.transcript import Transcript
from skpmtl.privacy import gdp_mu
from tests.helpers import federated_sites
from tests.helpers.federated_cases import (
    M,
    and_slow,
    in_process,
    released,
    rest_of_fit,
    rows_of,
    study_of,
)
from tests.helpers.federated_sites import InProcessSites, changed, models_of

pytestmark = [
    pytest.mark.filterwarnings("ignore:The noise of this fit is reproducible"),
    pytest.mark.filterwarnings("ignore:relation= has 2 columns for 9 tasks"),
]
pytest.importorskip("cryptography.hazmat.primitives.hpke", reason="needs cryptography 47")
MARK = b"m" * 32


def served(folder, case="rounds", n_rounds=2, **settings):
    """A study, and the keys of its servers in the folder."""
    keys = {name: new_share_key(folder / f"{name}.key") for name in ("north", "south")}
    if case == "rounds":
        settings["parameters"] = {"clip_norm": 1.0, "n_rounds": n_rounds}
    return study_of(case, servers=keys, **settings)


FEW = ("rounds", "mean", "meta")
MORE = ("loop", "low rank", "low rank, covariates", "clusters", "classes", "meta, local")


@pytest.mark.parametrize("case", and_slow(FEW, MORE))
def test_equals_servers_in_one_process(tmp_path, case):
    """With the same noise, to the steps of the grids: every site rounds its own sum."""
    study = served(tmp_path, case)
    whole = in_process(study)
    billboard = curate(InProcessSites(study, tmp_path), study, tmp_path / "curator")
    first = Transcript(study, "", []).steps[0]
    steps = [servers.step_of(m, first.bound) for m in getattr(first, "mechanisms", {}).values()]
    ours, theirs = released(billboard), released(whole.billboard_)
    if steps:
        assert np.abs(ours[0] - theirs[0]).max() <= 2.0 * steps[0]  # three sites and the whole
    for a, b in zip(ours, theirs, strict=True):
        assert_allclose(a, b, rtol=0, atol=1e-5)
    for task, model in models_of(tmp_path, study).items():
        assert_allclose(model["coef"], whole.export_task(task)["coef"], rtol=0, atol=1e-4)
    assert billboard.report.epsilon == whole.privacy_.epsilon
    assert billboard.report.mu == whole.privacy_.mu
    assert "one process" in str(whole.privacy_)
    assert "one process" not in str(billboard.report)
    assert "servers of their own (north, south)" in billboard.report.notes["transport"]


def test_no_process_holds_a_plain_contribution(tmp_path):
    """What each received: the curator bytes that it cannot open, a server shares that are noise
    without those of the other one, and nobody but the site what its tasks contributed."""
    study = served(tmp_path, seed=None)
    grid = InProcessSites(study, tmp_path)
    curate(grid, study, tmp_path / "curator")
    sites, sent = [], {"north": [], "south": []}
    for k in range(3):
        (path,) = (tmp_path / f"site{k}").glob("*/state.npz")
        with np.load(path) as state:
            sites += [state["row.update"].tobytes()]
            sites += [row.tobytes() for row in state["row.update"]]
    everything = []
    for content in [*(content for _, _, content in grid.sent), *grid.received]:
        everything += [array.tobytes() for array in records.read(content)[1].values()]
    for name, kind, content in grid.sent:
        if kind == "total":
            arrays = records.read(content)[1]
            sent[name] += [arrays[key] for key in arrays if key.startswith("sealed")]
    everything = b"|".join(everything)
    assert not any(secret in everything for secret in sites)
    assert len(sent["north"]) == len(sent["south"]) == 2 * 3
    # What a server opens is noise by itself, and the sum of the sites with the other's.
    transcript = Transcript(study, "run", [])
    query, value = transcript.query(0), {"update": np.full((1, 3), 0.5)}
    both, opened = [], [[], []]
    for name in ("north", "south"):
        both.append(SiteConfig(tmp_path / f"{name}.toml").site(study.digest))
    for _ in range(100):
        shares = seal(transcript, query, value, MARK)
        for k, server in enumerate(both):
            share = own(shares, server.name)
            opened[k].append(server._opened(transcript, query, [share])["update"].copy())
    for one in opened:
        assert stats.kstest(np.ravel(one).astype(float) * 2.0**-64, "uniform").pvalue > 1e-9
    total = (np.array(opened[0]) + np.array(opened[1])).view(np.int64)
    assert (total == query.mechanisms["update"].steps(value["update"] / M)).all()


def own(shares, name):
    """Those of one server, by the name of the sum."""
    return {k.split(".")[1]: v for k, v in shares.items() if k.split(".")[0] == name}


@pytest.fixture
def one(tmp_path):
    """A server that was asked nothing yet, and its study."""
    study = served(tmp_path, n_rounds=3, seed=None)
    InProcessSites(study, tmp_path)
    return SiteConfig(tmp_path / "north.toml").site(study.digest), study


def sums_of(value):
    return {"update": np.full((1, 3), value)}


def test_a_server_adds_its_whole_noise_once(one):
    """The same query has the same answer; about other shares it has none."""
    server, study = one
    transcript = Transcript(study, "run", [])
    query = transcript.query(0)
    a = own(seal(transcript, query, sums_of(1), b"a" * 32), "north")
    b = own(seal(transcript, query, sums_of(2), b"b" * 32), "north")
    found = server.total(0, server.follow("run", 0, []), [a, b])
    plain = server._opened(transcript, query, [a, b])
    again = server.total(0, server.follow("run", 0, []), [a, b])
    assert_array_equal(found["update"], again["update"])
    noise = (found["update"].view(np.uint64) - plain["update"]).view(np.int64)
    assert (noise != 0).all()
    scale = query.mechanisms["update"].noise_std / query.mechanisms["update"].step
    assert np.abs(noise).max() < 8 * scale
    for sealed in ([a], [b, a], [a, b, b]):
        with pytest.raises(Refusal, match="other shares"):
            server.total(0, server.follow("run", 0, []), sealed)


def test_noise_of_a_server_suffices(one):
    server, study = one
    transcript = Transcript(study, "run", [])
    mechanism = transcript.query(0).mechanisms["update"]
    drawn = [server._noise(transcript)["update"].view(np.int64) for _ in range(100)]
    # 300 normals: their std is known within 4.1 %.
    alone = mechanism.sensitivity * np.sqrt(3) / gdp_mu(1.0, 1e-5)
    assert np.std(drawn) * mechanism.step == pytest.approx(alone, rel=0.25)


@pytest.mark.parametrize(
    "fault", ["twice", "question", "run", "server", "name", "noise", "nothing"]
)
def test_a_server_refuses_before_it_adds_noise(one, fault):
    """A contribution counted twice, or made for another query, would meet too little noise."""
    server, study = one
    transcript, other = Transcript(study, "run", []), Transcript(study, "another", [])
    query = transcript.query(0)
    shares = seal(transcript, query, sums_of(1), MARK)
    part = own(shares, "north")
    sealed = {
        "twice": [part, own(seal(transcript, query, sums_of(1), MARK), "north")],
        "question": [part, own(seal(next_query(study), query, sums_of(1), b"b" * 32), "north")],
        "run": [own(seal(other, query, sums_of(1), MARK), "north")],
        "server": [own(shares, "south")],
        "name": [{"inside": part["update"], "update": part["update"][:-1]}],
        "noise": [part, {"update": bytes(len(part["update"]))}],
        "nothing": [],
    }[fault]
    with pytest.raises(Refusal):
        server.total(0, server.follow("run", 0, []), sealed)
    places = [place for place, share in enumerate(sealed) if share is part]
    assert server.opens(0, server.follow("run", 0, []), sealed) == places
    assert not (server.folder / "state.npz").exists()
    server.total(0, server.follow("run", 0, []), [part])


def next_query(study):
    return Transcript(study, "run", [{"update": np.zeros(3)}])


def test_a_server_walks_one_way(one):
    """With another story of what was released it could be asked twice for one thing."""
    server, study = one
    transcript = Transcript(study, "run", [])
    sealed = seal(transcript, transcript.query(0), sums_of(1), MARK)
    server.total(0, server.follow("run", 0, []), [own(sealed, "north")])
    far = [{"update": np.ones(3)}, {"update": np.ones(3)}]
    transcript = Transcript(study, "run", far)
    sealed = seal(transcript, transcript.query(2), sums_of(1), MARK)
    server.total(2, server.follow("run", 0, far), [own(sealed, "north")])
    for number, replies, run, message in (
        (0, [], "run", "answered before"),
        (2, [{"update": np.ones(3)}, {"update": np.zeros(3)}], "run", "differ from those"),
        (2, far, "other", "another journal"),
        (1, far, "run", "after 2 releases"),
        (3, [*far, far[0]], "run", "none of the study, which has"),
        (2, [far[0], {"update": np.full(3, np.nan)}], "run", "none of the study"),
        (2, [far[0], {"update": np.ones(4)}], "run", "none of the study"),
        (2, [far[0], {"other": np.ones(3)}], "run", "other sums"),
    ):
        with pytest.raises(Refusal, match=message):
            server.total(number, server.follow(run, 0, replies), [{"update": b""}])


def test_a_site_receives_what_is_new(tmp_path):
    """What follows from parts of a story is what follows from the whole; a gap is noticed."""
    study = served(tmp_path, n_rounds=3)
    InProcessSites(study, tmp_path)
    site = SiteConfig(tmp_path / "site0.toml").site(study.digest)
    a, b = ({"update": np.full((1, 3), v)} for v in (0.5, 0.25))
    with pytest.raises(Lacking):
        site.follow("run", 1, [b])
    whole = Transcript(study, "run", [a, b])
    for parts in ([(0, [a]), (1, [b])], [(0, [a]), (0, [a, b])], [(0, [b]), (0, [a]), (1, [b])]):
        for first, replies in parts:
            found = site.follow("run", first, replies)
        assert found.codes == whole.codes
        assert_array_equal(found.query(2).public["centre"], whole.query(2).public["centre"])
    for run, first in (("another", 2), ("run", 3)):
        with pytest.raises(Lacking):
            site.follow(run, first, [])
    with pytest.raises(Lacking):
        site.follow("run", 2, [])  # what it knew is of no use since


def test_a_site_that_is_lost_and_one_that_sends_garbage(tmp_path, caplog):
    """They count as nothing where it can be seen; the denominator stays."""
    study = served(tmp_path, timeout=0.5)

    sent = []

    def broken(site, kind, content, reply):
        if site != "site1" or kind != "seal":
            return reply
        sent.append(kind)
        return None if len(sent) % 2 else changed(reply, {"north.rows": np.zeros(3)})

    billboard = curate(InProcessSites(study, tmp_path, broken=broken), study, tmp_path / "curator")
    expected = rest_of_fit(study).billboard_.releases
    assert_allclose(billboard.releases, expected, rtol=0, atol=1e-5)
    assert "6 of 18 were missing" in billboard.report.notes["contributions"]


@pytest.mark.parametrize("kind", ["damaged", "copied"])
def test_a_share_that_does_not_open_counts_at_no_server(tmp_path, kind, caplog):
    """Which only one of the servers can see; the others must not add what they have of the site."""
    study, first, totals = served(tmp_path), {}, []

    def broken(site, asked, content, reply):
        if asked == "total":
            totals.append(content)
        if asked != "seal" or site not in ("site0", "site1"):
            return reply
        arrays = records.read(reply)[1]
        if site == "site0":
            first.update(arrays)
            return reply
        arrays["south.update"][-1] ^= 1
        return changed(reply, {"damaged": arrays, "copied": first}[kind])

    grid = InProcessSites(study, tmp_path, broken=broken)
    billboard = curate(grid, study, tmp_path / "curator")
    expected = rest_of_fit(study).billboard_.releases
    assert_allclose(billboard.releases, expected, rtol=0, atol=1e-5)
    assert "6 of 18 were missing" in billboard.report.notes["contributions"]
    assert "site1: its share does not open at the server" in caplog.text
    assert {records.settings(content)["sites"] for content in totals} == {2}


def test_shares_that_nobody_can_open_release_nothing(tmp_path):
    study = served(tmp_path)

    def broken(site, kind, content, reply):
        if kind != "seal":
            return reply
        arrays = records.read(reply)[1]
        return changed(reply, {**arrays, "north.update": np.zeros_like(arrays["north.update"])})

    with pytest.raises(RuntimeError, match="opens at all servers"):
        curate(InProcessSites(study, tmp_path, broken=broken), study, tmp_path / "curator")
    assert not list((tmp_path / "curator" / "journal").glob("*.npz"))
    for name in ("north", "south"):
        assert not list((tmp_path / name).glob("*/state.npz"))
    billboard = curate(InProcessSites(study, tmp_path), study, tmp_path / "curator")
    assert_allclose(billboard.releases, in_process(study).billboard_.releases, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "said", and_slow([{"places": 3}], [{}, {"status": "refused", "reason": "none"}])
)
def test_a_server_that_does_not_say_which_shares_open(tmp_path, said):
    study = served(tmp_path)

    def broken(site, kind, content, reply):
        if site != "south" or kind != "opens":
            return reply
        mark = records.settings(reply)["mark"]
        return records.write(**{"status": "answered", "mark": mark, **said})

    with pytest.raises(RuntimeError, match='south does not (say|answer "opens": none)'):
        curate(InProcessSites(study, tmp_path, broken=broken), study, tmp_path / "curator")
    assert not list((tmp_path / "north").glob("*/state.npz"))


def noise_of(folder):
    """What a server has answered last. -> {name: ndarray}"""
    (path,) = folder.glob("*/state.npz")
    with np.load(path) as state:
        return {name: state[name] for name in state.files if name.startswith("total.")}


@pytest.mark.parametrize("running", [True, False])
def test_server_from_a_backup_gives_no_second_answer(tmp_path, monkeypatch, caplog, running):
    """With new noise, from which the sum could be read the better. Its folder is put back after
    it answered the second query, while the curator runs or before it is started again."""
    study = served(tmp_path, seed=None, enrolment=1.0, n_rounds=3)
    north, old, new = (tmp_path / name for name in ("north", "old", "new"))
    keep, answers = Journal.keep, []

    def backup(site, kind, content, reply):
        if site == "north" and kind == "total" and records.settings(reply)["status"] == "answered":
            answers.append(noise_of(north))
            if len(answers) == 1:
                shutil.copytree(north, old)
        return reply

    def cut(journal, reply, source):
        if journal.place == 1:
            shutil.copytree(north, new)
            shutil.rmtree(north)
            shutil.copytree(old, north)
            if not running:
                raise KeyboardInterrupt
        keep(journal, reply, source)

    monkeypatch.setattr(Journal, "keep", cut)
    grid = InProcessSites(study, tmp_path, broken=backup)
    with pytest.raises(RuntimeError if running else KeyboardInterrupt):
        curate(grid, study, tmp_path / "curator")
    monkeypatch.setattr(Journal, "keep", keep)
    if not running:
        with pytest.raises(RuntimeError, match="Without the servers .*north"):
            curate(InProcessSites(study, tmp_path, broken=backup), study, tmp_path / "curator")
    assert "older books were restored" in caplog.text
    assert len(answers) == 2
    shutil.rmtree(north)
    shutil.copytree(new, north)
    billboard = curate(InProcessSites(study, tmp_path, broken=backup), study, tmp_path / "curator")
    assert len(billboard.releases) == 3
    if not running:  # the second query was not in the journal
        assert_array_equal(answers[2]["total.update"], answers[1]["total.update"])
    assert any("never restored" in line for line in billboard.report.assumptions)


def test_without_a_server_nothing_is_released(tmp_path):
    study = served(tmp_path)
    grid = InProcessSites(study, tmp_path)
    grid.offline = {"north"}
    with pytest.raises(RuntimeError, match="Without the servers .*north"):
        curate(grid, study, tmp_path / "curator")
    assert not [kind for _, kind, _ in grid.sent if kind != "enrol"]


@pytest.mark.parametrize(
    "case, settings, message",
    [
        ("rounds", {"servers": {"north": "0" * 64}}, "2 to 16"),
        ("rounds", {"servers": {"a": "0" * 64, "b": "0" * 64}}, "its own|key of its"),
        ("rounds", {"servers": {"a": "0" * 64, "b": "x"}}, "FILE"),
        ("rounds", {"servers": {"a": "0" * 64, "../b": "1" * 64}}, "letters"),
    ],
)
def test_studies_without_servers(case, settings, message):
    with pytest.raises(ValueError, match=message):
        study_of(case, **settings)


def test_a_key_of_no_server(tmp_path):
    study = served(tmp_path)
    InProcessSites(study, tmp_path)
    (tmp_path / "north.key").unlink()
    new_share_key(tmp_path / "north.key")
    with pytest.raises(ValueError, match="none of the servers"):
        SiteConfig(tmp_path / "north.toml").site(study.digest)


# ------------------------------------------------------------------- besides the numbers
def rest_of(content):
    """A message without codes, and with the sizes of its arrays in place of their numbers."""
    settings = records.settings(content)
    if "mark" in settings:
        settings["mark"] = json.loads(settings["mark"])[0]  # the code depends on the time
    sizes = {name: len(data) for name, data in content["arrays"].items()}
    return settings, list(content["arrays"]), sizes


@pytest.mark.parametrize(
    ("case", "of"), [("meta", study_of), ("rounds", study_of), ("rounds", served)]
)
def test_only_numbers_in_messages_depend_on_rows(tmp_path, case, of, monkeypatch):
    """Order, kinds and sizes of the messages do not depend on the rows of a task, or how many."""
    study, found = of(case) if of is study_of else of(tmp_path, case), []
    X, y, task = rows_of(study)
    mine = np.flatnonzero(task == 4)
    far, few = X.copy(), np.ones(len(y), dtype=bool)
    far[mine], few[mine[1:]] = 1e12, False
    for name, rows in (("all", (X, y, task)), ("one", (far[few], y[few], task[few]))):
        monkeypatch.setattr(federated_sites, "rows_of", lambda study, rows=rows: rows)
        folder = tmp_path / name
        folder.mkdir()
        for key in tmp_path.glob("*.key"):
            shutil.copy(key, folder)
        grid = InProcessSites(study, folder)
        curate(grid, study, folder / "curator")
        found.append([rest_of(message) for message in grid.received])
    assert len(found[0]) > 10
    assert found[0] == found[1]


def test_site_of_a_study_with_servers_shows_no_contribution(tmp_path):
    study = served(tmp_path)
    grid = InProcessSites(study, tmp_path)
    content = records.write(
        study=study.digest,
        name="",
        skpmtl="",
        number=0,
        public="{}",
        statistic="update",
        positions=[1, 4, 6],
    )
    settings, arrays = records.read(grid.exchange("answer", {"site0": content}, 1.0)["site0"])
    assert settings["reason"] == "the study has servers" and not arrays
