"""The books of a site: what it has answered is written down, and checked before it answers."""

import json
import math
import shutil

import numpy as np
import pytest

from skpmtl.federated.ledger import Damaged, Refusal, spending
from skpmtl.federated.marks import Marks
from skpmtl.federated.site import Site
from tests.helpers.federated_cases import PARTS, D, rows_of, study_of

pytestmark = pytest.mark.filterwarnings("ignore:The noise of this fit is reproducible")
PUBLIC = {"init": np.zeros((1, D + 1)), "round": 0}
MINE = np.array([1, 4])


def site_of(folder, cap=math.inf, **settings):
    study = study_of("meta, units", seed=None, **settings)
    X, y, task = rows_of(study)
    mine = np.isin(task, PARTS[0])
    return Site(study, (X[mine], y[mine], task[mine]), folder, cap)


def query(site, number):
    place = 2 * number + 1  # queries alternate with draws
    return site.answer(place, "update", PUBLIC | {"round": number}, MINE, "run")["update"]


def lines(folder):
    return [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]


def test_every_answer_is_a_line(tmp_path):
    for number in (0, 0, 1):
        query(site_of(tmp_path), number)
    found = lines(tmp_path)
    assert [line["question"] for line in found] == [1, 3]
    assert found[0]["study"] == "test"
    assert found[0]["tasks"] == [1, 4]
    assert found[0]["epsilon"] == 5.0
    assert spending(found) == {site_of(tmp_path).study.digest: 5.0}
    assert (tmp_path / "ledger.jsonl").stat().st_mode & 0o077 == 0


def test_cap_on_all_studies(tmp_path):
    query(site_of(tmp_path, 9.0), 0)
    with pytest.raises(Refusal, match="no room"):
        query(site_of(tmp_path, 9.0, name="second"), 0)
    assert not (site_of(tmp_path, 9.0, name="second").folder / "state.npz").exists()
    query(site_of(tmp_path, 9.0), 1)  # the budget of a study is counted once, for all its rounds
    query(site_of(tmp_path, 10.0, name="second"), 0)
    assert len(lines(tmp_path)) == 3


def edit(change):
    """A fault that changes the lines of the ledger."""

    def fault(folder):
        path = folder / "ledger.jsonl"
        path.write_bytes(change(path.read_bytes()))

    return fault


def lines_of(content):
    return content.splitlines(True)


CRASHES = {
    "half a line": edit(lambda content: content[:-20]),
    "last line": edit(lambda content: b"".join(lines_of(content)[:-1])),
    "half a line more": edit(lambda content: content + b'{"before": "'),
}


@pytest.mark.parametrize("cut", CRASHES.values(), ids=CRASHES)
def test_ledger_is_completed_after_a_crash(tmp_path, cut):
    """The state is written first: a process may be killed before the line is."""
    first = query(site_of(tmp_path), 0)
    expected = lines(tmp_path)
    cut(tmp_path)
    np.testing.assert_array_equal(query(site_of(tmp_path), 0), first)
    query(site_of(tmp_path), 1)
    assert lines(tmp_path)[:-1] == expected


def state(folder):
    (found,) = folder.glob("test-*/state.npz")
    return found


FAULTS = {
    "no lines": edit(lambda content: b""),
    "no ledger": lambda folder: (folder / "ledger.jsonl").unlink(),
    "no state": lambda folder: state(folder).unlink(),
    "no folder": lambda folder: shutil.rmtree(state(folder).parent),
    "broken state": lambda folder: state(folder).write_bytes(state(folder).read_bytes()[:-50]),
    "a number": edit(lambda content: content.replace(b'"epsilon": 5.0', b'"epsilon": 0.1', 1)),
    "no text": edit(lambda content: b"\xff\xfe" + content),
    "a line left out": edit(lambda content: lines_of(content)[1]),
    "the last number": edit(lambda content: content.replace(b'"question": 3', b'"question": 7')),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_books_that_do_not_agree_answer_nothing(tmp_path, fault):
    for number in (0, 1):
        query(site_of(tmp_path), number)
    fault(tmp_path)
    with pytest.raises(Damaged, match="ledger|state"):
        query(site_of(tmp_path), 2)


def test_state_from_a_backup_is_refused(tmp_path):
    """Its noise would be drawn a second time."""
    query(site_of(tmp_path), 0)
    old = state(tmp_path).read_bytes()
    query(site_of(tmp_path), 1)
    state(tmp_path).write_bytes(old)
    with pytest.raises(Damaged, match="not of the last answer"):
        query(site_of(tmp_path), 1)


def test_books_from_before_the_mark_answer_nothing(tmp_path):
    """All of them agree with each other; only somebody who has seen the newer ones can tell."""
    books, old = tmp_path / "books", tmp_path / "old"
    query(site_of(books), 0)
    shutil.copytree(books, old)
    first = site_of(books).mark()
    assert first[0] == 1
    query(site_of(books), 1)
    for mark in (first, site_of(books).mark(), [0, ""]):
        site_of(books).check_mark(mark)
    last = site_of(books).mark()
    assert last[0] == 2
    for mark in ([2, first[1]], [3, last[1]], [-1, last[1]]):
        with pytest.raises(Damaged, match="older books were restored"):
            site_of(books).check_mark(mark)
    site_of(old).check_mark(first)
    for folder in (old, tmp_path / "new"):
        with pytest.raises(Damaged, match=r"has [01] lines of this study, .* recorded 2"):
            site_of(folder).check_mark(last)


def test_marks_never_go_back(tmp_path):
    marks = Marks(tmp_path / "marks.json", False)
    assert marks.of("a") is None
    assert marks.take("a", '[0, ""]')
    assert marks.take("a", '[2, "x"]')
    assert marks.take("a", '[2, "x"]')
    for older in ('[1, "y"]', '[2, "y"]', '[0, ""]'):
        assert not marks.take("a", older)
    for none in ("[]", "{}", '["2", "x"]', "[true, 3]", "no"):
        with pytest.raises(ValueError):
            marks.take("a", none)
    marks.save()
    assert Marks(tmp_path / "marks.json", True).of("a") == [2, "x"]
    assert (tmp_path / "marks.json").stat().st_mode & 0o077 == 0
    with pytest.raises(ValueError, match="missing or damaged"):
        Marks(tmp_path / "other.json", True)
