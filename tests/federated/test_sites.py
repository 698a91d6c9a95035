"""The task sides of a federation that need no engine: studies, and what a site answers."""

import json
import sys
from numbers import Real

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skpmtl.exchange.protocol import QuerySpec, run
from skpmtl.federated import load_models
from skpmtl.federated.__main__ import main as command
from skpmtl.federated.refusals import Lacking
from skpmtl.federated.site import Refusal, Site, read_rows
from skpmtl.federated.site_config import Settings
from skpmtl.federated.study import Study, federated
from skpmtl.federated.transcript import Transcript, recorded
from tests.helpers.federated_cases import CASES, PARTS, D, M, rows_of, study_of
from tests.helpers.public import NAMES

pytestmark = pytest.mark.filterwarnings("ignore:The noise of this fit is reproducible")


def test_study_files_agree(tmp_path):
    study = study_of("rounds")
    text = {
        "name": "test",
        "estimator": "LinearRounds",
        "tasks": list(range(M)),
        "features": D,
        "parameters": {"clip_norm": 1.0, "n_rounds": 4},
        "seed": 3,
        "timeout": 1.0,
        "enrolment": 0.3,
    }
    (tmp_path / "a.json").write_text(json.dumps(text))
    assert Study.load(tmp_path / "a.json").digest == study.digest
    if sys.version_info >= (3, 11):
        lines = [f"{k} = {json.dumps(v)}" for k, v in text.items() if k != "parameters"]
        lines += ["[parameters]", "clip_norm = 1.0", "n_rounds = 4"]
        (tmp_path / "a.toml").write_text("\n".join(lines))
        assert Study.load(tmp_path / "a.toml") == study
    assert study_of("rounds", parameters={"n_rounds": 5}).digest != study.digest
    assert study_of("rounds", parameters={"n_rounds": 4, "epsilon": 9.0}).digest != study.digest


@pytest.mark.parametrize(
    "change, message",
    [
        ({"estimator": "LocalOnly"}, "can be federated"),
        ({"estimator": "os.system"}, "can be federated"),
        ({"name": "../x"}, "letters"),
        ({"parameters": {"epsilon": None}}, "no private fit"),
        ({"parameters": {"epsilon": float("inf")}}, "no private fit"),
        ({"parameters": {"random_state": 1}}, "seed"),
        ({"parameters": {"tasks": [1]}}, '"tasks" beside'),
        ({"parameters": {"verbos": 1}}, "no parameter 'verbos'"),
        ({"parameters": {"clip_norm": -1.0}}, "clip_norm"),
        ({"classes": [0, 1]}, "has no classes"),
        ({"n_rows": 5}, "no use for it"),
        ({"tasks": [1, 1]}, "more than once"),
        ({"tasks": []}, "list all tasks"),
        ({"features": 0}, "features"),
        ({"timeout": 0}, "timeout"),
        ({"estimator": "DPMetaInit", "parameters": {}}, "n_rows"),
        (
            {
                "estimator": "DPMetaInit",
                "n_rows": 5,
                "parameters": {"batches": "disjoint", "batch_size": 2},
            },
            "curator is not told",
        ),
        (
            {"estimator": "DPMetaInit", "n_rows": 5, "parameters": {"privacy": None}},
            "no private fit",
        ),
    ],
)
def test_study_refuses(change, message):
    with pytest.raises(ValueError, match=message):
        study_of("rounds", **change)


def test_study_refuses_unknown_keys(tmp_path):
    (tmp_path / "a.json").write_text('{"name": "x", "sites": 3}')
    with pytest.raises(ValueError, match="sites"):
        Study.load(tmp_path / "a.json")
    (tmp_path / "a.json").write_text('{"name": "x"}')
    with pytest.raises(ValueError, match="lacks .*estimator"):
        Study.load(tmp_path / "a.json")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epsilon = 1.0", "names no study"),
        ("study = [1]", "names no study"),
        ('[[study]]\nfile = "a"', "needs rows, or server="),
        ('[[study]]\nfile = "a"\nrows = "b"\nrow = "c"', "has the keys .'row'"),
        ('[[study]]\nrows = "b"', "lacks .'file'"),
        ('[[study]]\nfile = "a"\nrows = 3', "rows=3 must be text"),
        ('epsilon = -1\n[[study]]\nfile = "a"\nrows = "b"', "epsilon=-1 must be positive"),
    ],
)
def test_settings_of_a_site_are_refused(text, message, tmp_path):
    (tmp_path / "site.toml").write_text(text)
    with pytest.raises(ValueError, match=message):
        Settings.load(tmp_path / "site.toml")


def test_estimators_that_can_be_federated():
    found = {name for name in federated() if name in NAMES}
    names = {estimator for estimator, _ in CASES.values()} & set(NAMES)
    assert {name.removesuffix("Classifier") for name in found} == {
        name.removesuffix("Classifier") for name in names
    }


def test_a_study_has_questions_about_what_it_names_alone():
    more = {"relation", "factor", "across", "groups", "errors"}
    assert not more & study_of("loop").questions.keys()
    assert more & study_of("relation").questions.keys() == {"relation"}


@pytest.mark.parametrize("ending", ["csv", "parquet", "npz"])
def test_rows_from_files(tmp_path, ending):
    pd = pytest.importorskip("pandas")
    study = study_of("rounds", features=["a", "b", "c"])
    X, y, task = rows_of(study)
    path, columns = tmp_path / f"rows.{ending}", {"task": "school", "target": "score"}
    sure, columns["weight"] = np.linspace(0, 1, len(y)), "sure"
    frame = pd.DataFrame(X[:, ::-1], columns=["c", "b", "a"])
    frame = frame.assign(school=task, score=y, sure=sure)
    if ending == "csv":
        frame.to_csv(path, index=False, float_format="%.17g")
    elif ending == "parquet":
        pytest.importorskip("pyarrow", reason="needs pyarrow")
        frame.to_parquet(path)
    else:
        np.savez(path, X=X, school=task, score=y, sure=sure)
    found = read_rows(path, study, **columns)
    for ours, theirs in zip(found, (X, y, task, sure), strict=True):
        # pandas before 3.1 reads a last bit of other numbers
        assert_allclose(np.asarray(ours), theirs, rtol=4e-16, atol=4e-16)
    del columns["weight"]
    assert len(read_rows(path, study, **columns)) == 3


@pytest.mark.parametrize("tasks", [["007", "NA", "8"], [7, 8, 2**60 + 1]])
def test_tasks_of_files_are_those_of_the_study(tmp_path, tasks):
    lines = [f"{task},1.0,2.0\n" for task in tasks]
    study = study_of("rounds", tasks=tasks, features=1)
    path = tmp_path / "rows.csv"
    for some in (lines, lines[:1], lines[1:2]):
        path.write_text("task,x,y\n" + "".join(some))
        assert read_rows(path, study)[2].tolist() == tasks[lines.index(some[0]) :][: len(some)]
    path.write_text("task,x,y\n" + lines[0] + "07,1.0,2.0\n")
    with pytest.raises(ValueError, match=r"in line 3, column 'task', than the study lists"):
        read_rows(path, study)


def test_columns_of_files_are_as_the_study_declares(tmp_path):
    study = study_of("labels", features=1, tasks=["a", "b"], classes=["NA", "1"])
    path = tmp_path / "rows.csv"
    path.write_text("task,x,y\na,1.5,NA\nb,2,1\n")
    X, y, _ = read_rows(path, study)
    assert (X["x"].tolist(), y.tolist()) == ([1.5, 2.0], ["NA", "1"])
    for line, column in (("b,secret,1", "x"), ("b,2,secret", "y"), ("b,2,", "y"), (",2,1", "task")):
        path.write_text(f"task,x,y\na,1.5,NA\n{line}\n")
        with pytest.raises(ValueError, match=rf"(?=.*line 3)(?=.*'{column}')") as error:
            read_rows(path, study)
        assert "secret" not in str(error.value)


def site_of(study, folder, part=PARTS[0]):
    X, y, task = rows_of(study)
    mine = np.isin(task, part)
    return Site(study, (X[mine], y[mine], task[mine]), folder)


def test_site_answers_every_question_once(tmp_path):
    """The second process finds the noise and the running models of the first in the file."""
    study = study_of("meta, units")
    unseeded = study_of("meta, units", seed=None)
    positions = np.array([1, 4])  # queries alternate with draws
    public = {"init": np.zeros((1, D + 1)), "round": 0, "everybody": positions}
    first = site_of(unseeded, tmp_path).answer(1, "update", public, positions)
    again = site_of(unseeded, tmp_path).answer(1, "update", public, positions)
    assert_array_equal(first["update"], again["update"])
    other = site_of(unseeded, tmp_path).answer(3, "update", public, positions)
    assert (other["update"] != first["update"]).all()
    with pytest.raises(Refusal, match="second run"):
        site_of(unseeded, tmp_path).answer(1, "update", public, positions)
    with pytest.raises(Refusal, match="other tasks"):
        site_of(unseeded, tmp_path).answer(3, "update", public, positions[:1])
    # Two visits are all that the budget of a task allows, whoever asks.
    with pytest.raises(Refusal, match="take part 2 times"):
        site_of(unseeded, tmp_path).answer(5, "update", public, positions)
    assert site_of(study, tmp_path).folder != site_of(unseeded, tmp_path).folder


@pytest.mark.parametrize("change", ["X", "y", "order"])
def test_other_rows_do_not_answer_in_the_name_of_the_first(tmp_path, change):
    study = study_of("rounds")
    public = {"centre": np.zeros((1, D)), "clip_norm": 1.0}
    positions = np.array(PARTS[0])
    first = site_of(study, tmp_path)
    first.answer(0, "update", public, positions)
    X, y, task = first.rows
    if change == "order":
        X = X[::-1]
    else:
        (X if change == "X" else y)[-1] += 1e-9
    other = Site(study, (X, y, task), tmp_path)
    for number in (0, 1):
        with pytest.raises(Refusal, match="not those of the earlier answers"):
            other.answer(number, "update", public, positions)
    assert len(site_of(study, tmp_path).answer(1, "update", public, positions)["update"]) == 3


@pytest.mark.parametrize("positions", [[1, 1], [4, 1], [1, 4, 4]])
def test_no_task_answers_twice_in_one_question(tmp_path, positions):
    """Every answer of DPMetaInit has noise of its own: their mean would be free of it."""
    site = site_of(study_of("meta, units", seed=None), tmp_path)
    public = {"init": np.zeros((1, D + 1)), "round": 0, "everybody": np.array([1, 4])}
    with pytest.raises(Refusal, match="twice"):
        site.answer(1, "update", public, np.array(positions))
    assert not (site.folder / "state.npz").exists()


@pytest.mark.parametrize(
    "change, message",
    [
        *(({"init": np.zeros(shape)}, "shape") for shape in [(1, 2), (2, 4), (1, 5), (4,)]),
        ({"init": np.full((1, D + 1), np.nan)}, "init is not finite"),
        ({"init": np.zeros((1, D + 1), dtype=np.float32)}, "init is no array of float64"),
        ({"init": np.zeros((1, D + 1), dtype=bool)}, "init is no array of float64"),
        ({"init": [[0.0] * (D + 1)]}, "init is no array of float64"),
        ({"round": 0.5}, "round is no Integral"),
        ({"round": -1}, "round is negative"),
        ({"round": np.nan}, "round is no Integral"),
        ({"everybody": np.array([1.0, 4.0])}, "everybody is no vector of int64"),
    ],
)
def test_public_numbers_of_another_kind_are_refused(tmp_path, change, message):
    """Compiled loops know one type of numbers, and do not check their bounds."""
    # Sites are told who else takes part for reproducible noise only.
    site = site_of(study_of("meta, units", seed=3 if "everybody" in change else None), tmp_path)
    public = {"init": np.zeros((1, D + 1)), "round": 0, "everybody": np.array([1, 4])}
    with pytest.raises(Refusal, match=message):
        site.answer(1, "update", public | change, np.array([1, 4]))
    # What the study does not name is not looked at.
    assert "update" in site.answer(1, "update", public | {"rows": "all"}, np.array([1, 4]))


@pytest.mark.parametrize(
    "expected, found, fault",
    [
        (([(2,)],), [np.zeros(2), np.zeros(2)], None),
        (([(2,)],), [np.zeros(2), np.zeros(3)], "of another shape"),
        (([(2,)],), np.zeros((1, 2)), "is no list of arrays"),
        (Real, 3, None),
        (Real, np.float64("inf"), "is not finite"),
        (Real, 10**400, "is not finite"),
        (Real, np.nan, "is not finite"),
        (Real, True, "is no Real"),
        (2.0, 2.0, None),
        (2.0, np.full(2, 2.0), "is not that of the study"),
        (2.0, "2.0", "is not that of the study"),
    ],
)
def test_what_a_question_may_hold(expected, found, fault):
    question = QuerySpec({}, {"number": expected})
    if fault is None:
        assert list(question.check({"number": found, "more": 1})) == ["number"]
        return
    with pytest.raises(ValueError, match=f"number.*{fault}"):
        question.check({"number": found})


def test_one_name_is_one_budget(tmp_path):
    """Another time-out, or version of skpmtl, makes another digest, but no new budget."""
    public = {"init": np.zeros((1, D + 1)), "round": 0, "everybody": np.array([1, 4])}
    asked = 1, "update", public, np.array([1, 4])
    site_of(study_of("meta, units", seed=None), tmp_path).answer(*asked)
    changed = study_of("meta, units", seed=None, timeout=7.0)
    with pytest.raises(Refusal, match="of this name"):
        site_of(changed, tmp_path).answer(*asked)
    renamed = study_of("meta, units", seed=None, name="test-2", timeout=7.0)
    assert "update" in site_of(renamed, tmp_path).answer(*asked)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"positions": [0]}, "not here"),
        ({"positions": []}, "not here"),
        ({"centre": np.zeros((1, D + 1))}, "centre is of another shape"),
        ({"centre": None}, "a query without centre"),
        ({"statistic": "intercept"}, "releases no intercept"),
    ],
)
def test_site_refuses_what_is_not_in_its_study(tmp_path, change, message):
    site = site_of(study_of("rounds"), tmp_path)
    given = {"statistic": "update", "positions": PARTS[0], "centre": np.zeros((1, D)), **change}
    public = {"centre": given["centre"], "clip_norm": 1.0}
    if given["centre"] is None:
        del public["centre"]
    positions = np.array(given["positions"], dtype=np.int64)
    with pytest.raises(Refusal, match=message):
        site.answer(0, given["statistic"], public, positions)
    assert not (site.folder / "state.npz").exists()


@pytest.mark.parametrize(
    "case, number, statistic, bound, message",
    [
        ("rounds", 5, "update", 1.0, "which has 4: the curator asks for more"),
        ("rounds", 0, "length", 1.0, "is 'length', and the study has 'update' there"),
        ("rounds", 0, "update", 100.0, "clip_norm=100.0, and the study plans 1.0"),
        ("rounds", 1, "update", np.nan, "clip_norm=nan, and the study plans"),
        ("meta, units", 0, "update", 1.0, "query 0 is none, but a draw"),
        ("meta, units", 9, "update", 1.0, "which has 8: the curator asks for more"),
    ],
)
def test_sites_answer_planned_queries_only(tmp_path, case, number, statistic, bound, message):
    """Whatever was released, and whoever was drawn, which sites are not told."""
    study = study_of(case)
    site, replies = site_of(study, tmp_path), []
    with pytest.raises(Refusal, match=message):
        while len(replies) < number:
            step = Transcript(study, "run", replies).steps[-1]
            names = getattr(step, "mechanisms", {})
            sums = {name: np.zeros((1, D + (case == "meta, units"))) for name in names}
            replies.append(sums or {"drawn": np.arange(M)})
        transcript = site.follow("run", 0, replies)
        transcript.check(number, statistic, {"clip_norm": bound})


class Replayed:
    """Task sides in one process, of whom each query is compared as sites compare it.

    Parameters
    ----------
    sites : list of Site
    skip : callable, default=None
        ``skip(number, place) -> bool``: whether a site is away, and hears of the releases later.
    """

    def __init__(self, tasks, sites, skip=lambda number, place: False):
        self.tasks, self.sites, self.skip = tasks, sites, skip
        self.replies, self.names = [], []
        self.delivered = dict.fromkeys(range(len(sites)), 0)

    def answer(self, query):
        number = len(self.names)
        for place, site in enumerate(self.sites):
            if self.skip(number, place):
                continue
            new = self.replies[self.delivered[place] :]
            transcript = site.follow("run", self.delivered[place], new)
            transcript.check(number, query.statistic, query.public)
            self.delivered[place] = number
            site.study.questions[query.statistic].check(query.public)
            with pytest.raises(Refusal, match=f"query {number} is 'other', and the study has"):
                transcript.check(number, "other", query.public)
            if "clip_norm" in query.public:
                larger = {"clip_norm": 1.001 * query.public["clip_norm"]}
                with pytest.raises(Refusal, match=f"query {number} has clip_norm=.* plans"):
                    transcript.check(number, query.statistic, larger)
        self.names.append(query.statistic)
        return self.tasks.answer(query)


def replayed_course(study, sites, **kwargs):
    est, population = study.build(), study.population()
    source = est._source()
    whole = sites[0]
    tasks = Replayed(whole.est._task_side(whole.table, whole.population), sites, **kwargs)
    run(recorded(est._curator(population, source), tasks.replies, np.copy), tasks, source)
    return tasks


@pytest.mark.parametrize(
    "case", ["loop", pytest.param("loop, labels", marks=pytest.mark.slow), "mean"]
)
def test_courses_that_releases_decide_are_answered(case, tmp_path):
    """Whatever an honest curator asks on its way is the only thing that a site answers, also where
    it was away in between; nothing is answered after the last query."""
    _, parameters = CASES[case]
    courses = set()
    for seed in range(8 if case.startswith("loop") else 2):
        given = parameters
        if case.startswith("loop"):
            given = parameters | {"epsilon": (30.0, 100.0, 1e3)[seed % 3]}
        study = study_of(case, seed=seed, parameters=given)
        site, late = (site_of(study, tmp_path / f"{seed} {k}", range(M)) for k in range(2))
        tasks = replayed_course(
            study, [site, late], skip=lambda number, place: place and number % 4 < 2
        )
        courses.add(tuple(tasks.names))
        with pytest.raises(Refusal, match=f"none of the study, which has {len(tasks.names)}"):
            site.follow("run", len(tasks.replies) - 1, tasks.replies[-1:])
    assert len(courses) > case.startswith("loop")


def test_sites_answer_about_groups(tmp_path):
    rng = np.random.default_rng(0)
    task, X = np.repeat(np.arange(60), 12), rng.normal(size=(720, D))
    y = X @ [3.0, 0.0, 0.0] * np.where(task % 2, 1.0, -1.0) + 0.1 * rng.normal(size=720)
    parameters = {"epsilon": 300.0, "structure": "groups"}
    study = study_of("loop", tasks=list(range(60)), parameters=parameters)
    tasks = replayed_course(study, [Site(study, (X, y, task), tmp_path)])
    assert "groups" in tasks.names


def test_other_releases_than_before_are_refused(tmp_path):
    """A curator cannot lead a site on two ways, nor one that lacks releases on another."""
    study = study_of("loop")
    site = site_of(study, tmp_path, range(M))
    tasks = replayed_course(study, [site])
    first, second = site.follow("run", 0, []), site.follow("run", 0, tasks.replies[:1])
    for number, transcript in enumerate((first, second)):
        query = transcript.steps[-1]
        positions = np.arange(M)
        site.answer(number, query.statistic, query.public, positions, "run", transcript)
    changed = [{k: v + 1e-9 for k, v in tasks.replies[0].items()}]
    query = (other := site.follow("run", 0, changed)).steps[-1]
    with pytest.raises(Refusal, match="differ from those that this site recorded"):
        site.answer(1, query.statistic, query.public, positions, "run", other)
    with pytest.raises(Lacking):
        site_of(study, tmp_path, range(M)).follow("run", 1, [])
    with pytest.raises(Refusal, match="of other sums"):
        site.follow("run", 0, [{"rows": np.zeros(3)}])


def test_site_refuses_rows_of_other_tasks(tmp_path):
    with pytest.raises(ValueError, match="Not among the tasks"):
        site_of(study_of("rounds", tasks=[1, 2]), tmp_path)
    with pytest.raises(ValueError, match="3 features"):
        site_of(study_of("rounds", features=4), tmp_path)


def test_models_of_a_site_predict_later(tmp_path):
    pd = pytest.importorskip("pandas")
    study = study_of("classes", features=["a", "b", "c"])
    X, y, task = rows_of(study)
    frame = pd.DataFrame(X, columns=study.features)
    whole = study.build().set_params(tasks=study.tasks).fit(frame, y, task=task)
    mine = np.isin(task, PARTS[1])
    site = Site(study, (frame[mine], y[mine], task[mine]), tmp_path)
    site.publish(whole.billboard_)
    est = load_models(site.folder)
    assert est.tasks_.tolist() == PARTS[1]
    expected = whole.predict_proba(frame[mine], task=task[mine])
    assert_allclose(est.predict_proba(frame[mine], task=task[mine]), expected, rtol=1e-9)
    written = json.loads((site.folder / "models.json").read_text())
    assert [model["task"] for model in written] == PARTS[1]
    assert_allclose(written[0]["coef"], whole.export_task(PARTS[1][0])["coef"], rtol=1e-9)
    with pytest.raises(ValueError, match="not fitted"):
        est.predict(frame[:1], task=[1])


@pytest.mark.parametrize(("n_tasks", "warned"), [(3, True), (60, False)])
def test_commands(tmp_path, capsys, n_tasks, warned):
    settings = {"name": "x", "estimator": "MPMTLLowRank", "features": D}
    study = str(tmp_path / "study.json")
    (tmp_path / "study.json").write_text(json.dumps({**settings, "tasks": [*range(n_tasks)]}))
    assert command(["check", study]) == 0
    printed = capsys.readouterr().out
    assert Study.load(study).digest in printed
    assert ("nothing will be released: so few tasks" in printed) == warned
