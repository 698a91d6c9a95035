"""The curator of a federated fit and real sites, within one process."""

import json
import os
import shutil

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skpmtl import load_billboard
from skpmtl.exchange.journal import Journal
from skpmtl.federated import records
from skpmtl.federated.curator import TooFew, curate
from skpmtl.federated.runlog import FAILED, FINISHED, questions, read_log, standing, trouble_lines
from skpmtl.privacy import PrivacyReport
from tests.helpers.federated_cases import (
    CASES,
    and_slow,
    in_process,
    released,
    rest_of_fit,
    study_of,
)
from tests.helpers.federated_sites import InProcessSites, changed, models_of

pytestmark = [
    pytest.mark.filterwarnings("ignore:The noise of this fit is reproducible"),
    pytest.mark.filterwarnings("ignore:relation= has 2 columns for 9 tasks"),
]
FEW = ("loop, errors", "rounds", "meta")


@pytest.mark.parametrize("case", and_slow(FEW, [case for case in CASES if case not in FEW]))
def test_sites_equal_one_process(tmp_path, case):
    study = study_of(case)
    whole = in_process(study)
    billboard = curate(InProcessSites(study, tmp_path), study, tmp_path / "curator")
    for ours, theirs in zip(released(billboard), released(whole.billboard_), strict=True):
        assert_allclose(ours, theirs, rtol=1e-10, atol=1e-11)
    if "standard_errors" in study.parameters:
        assert (whole.effect_std_ > 0.0).all()
        for name in ("effect_covariance", "row_variance"):
            ours, theirs = getattr(billboard, name), getattr(whole.billboard_, name)
            assert_allclose(ours, theirs, rtol=1e-7)
    for task, model in models_of(tmp_path, study).items():
        assert_allclose(model["coef"], whole.export_task(task)["coef"], rtol=1e-6, atol=1e-9)
    assert billboard.report.epsilon == whole.privacy_.epsilon
    public = load_billboard(tmp_path / "curator" / "billboard.npz")
    report = PrivacyReport.from_json((tmp_path / "curator" / "report.json").read_text())
    assert public.privacy_.epsilon == report.epsilon == whole.privacy_.epsilon
    assert standing(tmp_path / "curator")[0] == FINISHED


def number(value):
    return lambda reply: changed(reply, number=value)


def shape(reply):
    return changed(reply, {"update": np.zeros((1, 1))})


def not_finite(reply):
    arrays = records.read(reply)[1]
    return changed(reply, {name: np.full_like(a, np.nan) for name, a in arrays.items()})


def garbage(reply):
    return {"settings": "no", "arrays": {}}


@pytest.mark.parametrize("fault", [None, number(7), shape, not_finite, garbage])
def test_answers_that_cannot_be_used_count_as_zero(tmp_path, fault):
    """Late ones too; the denominator stays, and the other sites are as without them."""
    study = study_of("rounds")

    def broken(site, kind, content, reply):
        if site != "site1" or kind != "answer":
            return reply
        return None if fault is None else fault(reply)

    channel = InProcessSites(study, tmp_path, broken=broken)
    billboard = curate(channel, study, tmp_path / "curator")
    expected = rest_of_fit(study).billboard_.releases
    assert_allclose(billboard.releases, expected, rtol=1e-12, atol=1e-13)
    if fault is not not_finite:  # whose number the rows of a task decide
        assert "12 of 36 were missing" in billboard.report.notes["contributions"]


def test_contributions_are_clipped_again(tmp_path):
    study = study_of("rounds", parameters={"clip_norm": 1.0, "n_rounds": 1})

    def broken(site, kind, content, reply):
        if kind != "answer":
            return reply
        return changed(reply, {k: 1e6 * a for k, a in records.read(reply)[1].items()})

    far = curate(InProcessSites(study, tmp_path, broken=broken), study, tmp_path / "curator")
    near = in_process(study).billboard_
    # Nine tasks, each moved by twice its bound at most.
    assert np.linalg.norm(far.releases[0] - near.releases[0]) <= 2.0


@pytest.mark.parametrize("case, place", [("rounds", 0), ("mean", 2)])
def test_run_that_was_cut_off_spends_nothing_again(tmp_path, monkeypatch, case, place):
    """Between the answers and the journal, with new processes on both sides; models at the sites
    take no step twice."""
    study, keep = study_of(case), Journal.keep
    channel = InProcessSites(study, tmp_path)

    def cut(journal, reply, source):
        if journal.place == place:
            raise KeyboardInterrupt
        keep(journal, reply, source)

    monkeypatch.setattr(Journal, "keep", cut)
    with pytest.raises(KeyboardInterrupt):
        curate(channel, study, tmp_path / "curator")
    monkeypatch.setattr(Journal, "keep", keep)
    channel.restart()
    lines = len((tmp_path / "site0" / "ledger.jsonl").read_text().splitlines())
    billboard = curate(channel, study, tmp_path / "curator")
    whole = in_process(study)
    for ours, theirs in zip(released(billboard), released(whole.billboard_), strict=True):
        assert_allclose(ours, theirs, rtol=1e-10, atol=1e-11)
    for task, model in models_of(tmp_path, study).items():
        assert_allclose(model["coef"], whole.export_task(task)["coef"], rtol=1e-6, atol=1e-9)
    ledger = (tmp_path / "site0" / "ledger.jsonl").read_text().splitlines()
    asked = [json.loads(line)["question"] for line in ledger]
    assert lines >= 1 and asked == sorted(set(asked))


@pytest.mark.skipif(os.name != "posix", reason="needs RLIMIT_FSIZE")
def test_full_disk_of_a_site_spends_nothing(tmp_path):
    """Its answer is not sent before it is in the books; with room again, the study goes on."""
    import resource

    study, before = study_of("rounds", min_sites=3), resource.getrlimit(resource.RLIMIT_FSIZE)
    channel = InProcessSites(study, tmp_path)

    class Full(InProcessSites):
        def exchange(self, kind, contents, timeout):
            if kind != "answer":
                return super().exchange(kind, contents, timeout)
            full = {name: content for name, content in contents.items() if name == "site1"}
            replies = super().exchange(kind, {n: contents[n] for n in contents if n not in full}, 1)
            resource.setrlimit(resource.RLIMIT_FSIZE, (64, before[1]))
            try:
                return replies | super().exchange(kind, full, timeout)
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, before)

    with pytest.raises(TooFew, match=r"site1: failed: OSError \(File too large\)"):
        curate(Full(study, tmp_path), study, tmp_path / "curator")
    assert standing(tmp_path / "curator")[0] == FAILED
    assert not list((tmp_path / "curator" / "journal").glob("*.npz"))
    billboard = curate(channel, study, tmp_path / "curator")
    expected = in_process(study).billboard_.releases
    assert_allclose(billboard.releases, expected, rtol=1e-12, atol=1e-13)


def test_books_from_a_backup_answer_nothing(tmp_path, monkeypatch):
    """All of a site's files agree with each other; only the curator has seen newer ones."""
    study, keep = study_of("rounds", min_sites=3), Journal.keep
    channel = InProcessSites(study, tmp_path)

    def backup(journal, reply, source):
        if journal.place == 0:
            shutil.copytree(tmp_path / "site1", tmp_path / "old")
        if journal.place == 2:
            shutil.rmtree(tmp_path / "site1")
            shutil.copytree(tmp_path / "old", tmp_path / "site1")
        keep(journal, reply, source)

    monkeypatch.setattr(Journal, "keep", backup)
    with pytest.raises(TooFew, match="site1: refused: .*older books were restored"):
        curate(channel, study, tmp_path / "curator")
    assert any("older books" in text for text in trouble_lines(read_log(tmp_path / "curator")))


@pytest.mark.parametrize("least", [{"min_sites": 3}, {"min_tasks": 7}])
def test_too_few_sites_release_nothing(tmp_path, least):
    study = study_of("rounds", **least)
    channel = InProcessSites(study, tmp_path)
    channel.offline = {"site1"}
    with pytest.warns(UserWarning, match="Held by no site"), pytest.raises(TooFew):
        curate(channel, study, tmp_path / "curator")
    assert not list((tmp_path / "curator" / "journal").glob("*.npz"))
    assert {kind for _, kind, _ in channel.sent} == {"enrol"}


def test_site_that_was_away_takes_part_again(tmp_path):
    """It is sent what was released meanwhile."""
    study, asked = study_of("rounds"), []
    channel = InProcessSites(study, tmp_path)

    def broken(site, kind, content, reply):
        if kind == "answer" and site == "site1":
            asked.append(records.settings(content)["number"])
            return None if len(asked) == 1 else reply
        return reply

    channel.broken = broken
    curate(channel, study, tmp_path / "curator")
    events = questions(read_log(tmp_path / "curator"))
    assert "site1" not in events[0]["answered"] and "site1" in events[max(events)]["answered"]


def test_tasks_of_two_sites_are_refused(tmp_path):
    study = study_of("rounds")
    with pytest.raises(ValueError, match="Tasks of two sites: .*6"):
        curate(InProcessSites(study, tmp_path, ([1, 6], [6, 2])), study, tmp_path / "curator")


@pytest.mark.parametrize("change", [{"parameters": {"epsilon": 9.0}}, {"name": "other"}])
def test_sites_refuse_a_study_that_is_not_theirs(tmp_path, change):
    study = study_of("rounds")
    channel, other = InProcessSites(study, tmp_path), study_of("rounds", **change)
    with pytest.warns(UserWarning, match="Held by no site"), pytest.raises(TooFew, match="refused"):
        curate(channel, other, tmp_path / "curator")
    assert not list(tmp_path.glob("site*/*/state.npz"))


def test_errors_of_a_site_show_no_row(tmp_path):
    """Their type goes to the curator, their text to the log of the site."""
    study = study_of("rounds")
    channel = InProcessSites(study, tmp_path)
    with np.load(tmp_path / "1.npz") as rows:
        np.savez(tmp_path / "1.npz", **{**rows, "y": np.full(len(rows["y"]), np.inf)})
    with pytest.warns(UserWarning, match="Held by no site"):
        curate(channel, study, tmp_path / "curator")
    found = [records.settings(reply) for reply in channel.received]
    reasons = {one["reason"] for one in found if one["status"] == "failed"}
    assert reasons == {"ValueError; the log of the site has more"}
