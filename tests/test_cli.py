"""A table from the shell: what is written where, and that files predict as the pipeline does."""

import json
import re
import sys

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from numpy.testing import assert_allclose, assert_array_equal

from skpmtl import load_billboard
from skpmtl.__main__ import main
from skpmtl.cli.columns import Columns
from skpmtl.cli.models import file_name, read_models
from skpmtl.cli.table import save_picture, verdict
from skpmtl.datasets import make_clinics
from skpmtl.privacy import PrivacyReport
from skpmtl.tables.files import TableFile

NAMES = ["age", "weight", "visits", "sex", "smoker", "referral"]


# The kinds of the clinics' columns, which nothing guesses.
KINDS = "--category sex smoker referral"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with two tables, a public list of tasks and public values; the clinics of both."""
    clinics = make_clinics(70, (8, 30), random_state=0)
    table = clinics.data.assign(pressure=clinics.target)
    table["level"] = np.where(
        table["pressure"] > 138, "high", np.where(table["pressure"] < 124, "low", "fair")
    )
    late = table["clinic"] >= "clinic 060"
    table[~late].to_csv(tmp_path / "data.csv", index=False)
    table[late].to_csv(tmp_path / "late.csv", index=False)
    clinics.tasks[:60].to_csv(tmp_path / "tasks.csv")
    public = {"categories": clinics.categories}
    public["scale"] = {"age": 15.0, "weight": 15.0, "visits": 2.0}
    public["default"] = {"weight": 80.0}
    (tmp_path / "public.json").write_text(json.dumps(public))
    public["classes"] = ["fair", "high", "low"]
    (tmp_path / "classes.json").write_text(json.dumps(public))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(command):
    main(command.split())


@pytest.fixture
def no_picture(monkeypatch):
    """Pictures take most of the time of a small fit."""
    monkeypatch.setattr("skpmtl.cli.table.picture", lambda *given: False)


def test_effects_that_tasks_share_are_drawn_from_releases(folder, monkeypatch, no_picture, capsys):
    drawn, errorbar = [], Axes.errorbar

    def seen(axes, *args, **kwargs):
        drawn.append((args[0], kwargs["xerr"]))
        return errorbar(axes, *args, **kwargs)

    monkeypatch.setattr(Axes, "errorbar", seen)
    fit = "fit data.csv --task clinic --target pressure --regress --tasks tasks.csv "
    fit += "--public public.json --drop level --plot --output "
    run(f"{fit} out --epsilon 30 --method mean")
    effects = load_billboard(folder / "out/public/billboard.npz").summary().effects_frame()[:-1]
    ((effect, reach),) = drawn
    assert_allclose(effect[::-1], effects["effect"])
    assert_allclose(reach[::-1], (effects["upper"] - effects["effect"]).fillna(0.0))
    assert {"sex_male", "age"} < set(effect.index) and "intercept" not in effect.index
    assert (folder / "out/public/effects.png").read_bytes().startswith(b"\x89PNG")
    public = json.loads((folder / "public.json").read_text())
    del public["scale"]["age"]
    (folder / "public.json").write_text(json.dumps(public))
    run(f"{fit} own --epsilon 30 --method mean")
    est = load_billboard(folder / "own/public/billboard.npz")
    age = list(drawn[1][0].index[::-1]).index("age")
    scale, shared = est.billboard_.column_scale[age], est.summary().effects["effect"][age]
    assert scale > 3.0
    assert_allclose(drawn[1][0].loc["age"], shared * scale)
    capsys.readouterr()
    run(f"{fit} none --epsilon .001")
    assert not (folder / "none/public/effects.png").exists()
    assert "No picture of effects: " in capsys.readouterr().out


def at_home(folder, file="late.csv"):
    """Models of the late clinics by the estimators themselves; a pipeline, their rows, targets."""
    settings = json.loads((folder / "out/public/settings.json").read_text())
    columns = Columns.from_dict(settings)
    table, y = columns.read(TableFile(folder / file))
    model = columns.pipeline(load_billboard(folder / "out/public/billboard.npz"))
    rows = model[:-1].fit_transform(table)
    return model[-1].personalize(rows, y), rows


@pytest.mark.parametrize(("module", "file"), [("pandas", "data.csv"), ("pyarrow", "data.parquet")])
def test_what_tables_need_is_named(folder, module, file, monkeypatch):
    (folder / "data.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(SystemExit, match=r'pip install "skpmtl\[tables\]"'):
        run(f"fit {file} --task clinic --target pressure --regress --epsilon 1 --output out")


def test_regression(folder, capsys):
    run(
        "fit data.csv --task clinic --target pressure --regress --epsilon 40 --tasks tasks.csv "
        "--public public.json --drop level --method low-rank --output out"
    )
    printed = capsys.readouterr()
    assert "Warning" not in printed.err
    said = dict(re.findall(r"^ *(.*): +([0-9.]+)$", printed.out, re.MULTILINE))
    joint, alone, pooled, mean = (float(x) for x in said.values())
    assert joint < alone < 1.2 and joint < pooled < mean
    assert list(said)[1:] == ["every task alone", "one model for all tasks", "the mean"]
    assert re.search("This fit is (the best of these|as good as)", printed.out)  # noise is drawn
    public, private = folder / "out/public", folder / "out/private"
    report = PrivacyReport.from_json((public / "privacy.json").read_text())
    assert (report.epsilon, report.unit) == (40.0, "task")
    assert (public / "privacy.txt").read_text() == f"{report}\n"
    assert report._repr_html_() in (public / "privacy.html").read_text()
    # Public are the given values and the names of columns, and no name of a clinic.
    settings = json.loads((public / "settings.json").read_text())
    given = json.loads((folder / "public.json").read_text())
    assert settings == {
        "task": "clinic",
        "numbers": NAMES[:3],
        "target": "pressure",
        "classes": None,
        "covariates": {},
        "version": 2,
        **given,
    }
    assert not any(b"clinic 0" in path.read_bytes() for path in public.iterdir())
    errors = pd.read_csv(private / "errors.csv")
    assert len(errors) == 60 and (errors[["error", "error_alone"]] > 0).all(axis=None)
    assert (private / "errors.png").read_bytes().startswith(b"\x89PNG")
    assert len(list((private / "models").iterdir())) == 60

    run("personalize out/public late.csv --output more")
    run("predict more late.csv --output more/predictions.csv")
    found = pd.read_csv(folder / "more/predictions.csv")["prediction"]
    model, rows = at_home(folder)
    assert_allclose(found, model.predict(rows))
    # One model is enough for its own task, also with gaps and words that are not public.
    own = pd.read_csv(folder / "late.csv").query("clinic == 'clinic 065'")
    own.assign(smoker="pipe", weight=np.nan).to_csv(folder / "own.csv", index=False)
    capsys.readouterr()
    main(["predict", "more/clinic 065.json", "own.csv", "--output", "own_out.csv"])
    assert pd.read_csv(folder / "own_out.csv")["prediction"].notna().all()
    said = capsys.readouterr().out
    assert f"{len(own)} of {len(own)} values of 'smoker' are not among its cat" in said
    assert "pipe" not in said


def test_classes(folder, capsys, no_picture):
    run(
        "fit data.csv --task clinic --target level --epsilon 4 --tasks tasks.csv "
        "--public classes.json --drop pressure --method low-rank --output out"
    )
    assert "error rate" in capsys.readouterr().out
    for _ in range(2):  # models of the same tasks are replaced
        run("personalize out/public late.csv --output more")
    run("predict more late.csv --output predictions.csv --probabilities")
    found = pd.read_csv(folder / "predictions.csv")
    model, rows = at_home(folder)
    assert_array_equal(found["prediction"], model.predict(rows))
    names = [f"probability of {label}" for label in ("fair", "high", "low")]
    assert_allclose(found[names], model.predict_proba(rows), rtol=1e-6)
    model = json.loads((folder / "more/clinic 065.json").read_text())
    assert len(model["intercept"]) == len(model["numbers"]["age"]["coef"]) == 3


def test_public_covariates_about_tasks(folder, capsys, no_picture):
    covariates = make_clinics(70, (8, 30), random_state=0).tasks
    covariates[60:].to_csv(folder / "late_tasks.csv")
    command = (
        "fit data.csv --task clinic --target pressure --target-range 80 220 --epsilon 9 "
        "--tasks tasks.csv --public public.json --drop level --method covariates "
        "--output out --category region teaching"
    )
    with pytest.raises(SystemExit, match=r"tasks.csv .*'teaching' \(line 2\).*--category NAME"):
        run(command.replace(" teaching", ""))
    run(command)
    report = PrivacyReport.from_json((folder / "out/public/privacy.json").read_text())
    assert "teaching" in report.public_inputs["relation"]
    with pytest.raises(SystemExit, match="Error: Tasks without covariates"):
        run("personalize out/public late.csv --output more")
    run("personalize out/public late.csv --tasks late_tasks.csv --output more")
    assert len(list((folder / "more").iterdir())) == 10
    covariates[:60][[]].to_csv(folder / "tasks.csv")
    with pytest.raises(SystemExit, match="needs --tasks FILE with columns of covariates"):
        run(command.replace("--output out", "--output other"))


def test_what_is_read_from_rows_is_said(folder, capsys, no_picture):
    run(
        "fit data.csv --task clinic --target pressure --regress --epsilon 4 --drop level "
        f"--method low-rank --output out {KINDS}"
    )
    printed, warned = capsys.readouterr()
    assert "--tasks FILE" in warned
    assert "No public scale is known of ['age', 'weight', 'visits']" in printed
    assert "categories of 'sex', 'smoker' and 'referral' are read from private rows" in warned
    assert warned.count("are read from private rows") == 1  # of all columns together
    settings = json.loads((folder / "out/public/settings.json").read_text())
    assert settings["categories"]["sex"] == ["female", "male"]
    stated = load_billboard(folder / "out/public/billboard.npz").privacy_.text(None)
    lists = ["the tasks", *(f"the categories of {name!r} were" for name in NAMES[3:])]
    assert lists[0] + " were read from private rows" in stated
    assert " and ".join(lists[1:]).replace(" were and", " and") + " read from private" in stated
    assert " ".join((folder / "out/public/privacy.txt").read_text().split()) == stated


@pytest.mark.parametrize("n_tasks", [1, 5])
def test_a_fit_that_releases_nothing_names_the_plan(folder, capsys, no_picture, n_tasks):
    rows = pd.read_csv(folder / "data.csv").query(f"clinic < 'clinic {n_tasks:03d}'")
    rows.to_csv(folder / "data.csv", index=False)
    run(
        "fit data.csv --task clinic --target pressure --regress --epsilon 1 --drop level "
        f"--output out {KINDS}"
    )
    printed = capsys.readouterr().out
    line = next(x for x in printed.splitlines() if "epsilon = 0" in x)
    assert f"rows of {n_tasks} task" in printed and "nothing is released, because" in line
    stated = (folder / "out/public/privacy.txt").read_text()
    assert "published nothing" in stated and "budget shares" not in stated
    if n_tasks == 1:
        assert "one task, which has nobody to learn from" in printed
        return
    assert "because so few tasks and so small a budget" in line
    command = re.search(r"python -m skpmtl (plan --tasks \d+ --rows \d+ --features \d+)", printed)
    run(command[1] + " --repeats 1 --epsilon 3")
    assert "epsilon" in capsys.readouterr().out


def two_values(low, high):
    table = pd.read_csv("data.csv").query("clinic < 'clinic 008'")
    table["target"] = np.where(table["pressure"] < 131, low, high)
    table.drop(columns=["pressure", "level"]).to_csv("two.csv", index=False)
    return "fit two.csv --task clinic --target target --epsilon none --public public.json "


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ("0 1 --classify", "the classes ['0', '1']"),
        ("0 1 --regress", "numbers"),
        ("0 1", "numbers (for classes: --classify)"),  # without a budget
    ],
)
def test_targets_of_two_values(folder, values, said, capsys, no_picture):
    low, high, *more = values.split()
    run(two_values(low, high) + " ".join(["--output out", *more]))
    printed, warned = capsys.readouterr()
    assert f"The target 'target' holds {said}" in printed
    assert "NO differential privacy guarantee" in printed and "Warning" not in warned
    assert "no privacy guarantee" in (folder / "out/public/privacy.html").read_text()
    assert ("error rate" in printed) == said.startswith("the classes")
    run("personalize out/public two.csv --output more")
    run("predict more two.csv --output predictions.csv")
    found, y = pd.read_csv("predictions.csv")["prediction"], pd.read_csv("two.csv")["target"]
    if said.startswith("numbers"):
        assert np.corrcoef(found, y)[0, 1] > 0.3
        with pytest.raises(SystemExit, match="--probabilities is for classes"):
            run("predict more two.csv --output predictions.csv --probabilities")
        return
    assert np.mean(found == y) > 0.6
    run("predict more two.csv --output predictions.csv --probabilities")
    model, rows = at_home(folder, "two.csv")
    probabilities = pd.read_csv("predictions.csv").iloc[:, 2:]
    assert probabilities.columns.tolist() == [f"probability of {c}" for c in model.classes_]
    assert_allclose(probabilities, model.predict_proba(rows), rtol=1e-6)


@pytest.mark.parametrize("odd", ["0", "1", "0.5", "2", "maybe"])
def test_no_row_decides_the_kind_of_target(folder, odd, capsys):
    """Without a declaration nothing is fitted; with one a row of another kind is refused."""
    command = two_values("0", "1").replace("none", "3") + "--output out"
    table = pd.read_csv("two.csv", dtype=str)
    table.loc[7, "target"] = odd
    table.to_csv("two.csv", index=False)
    with pytest.raises(SystemExit, match=r"--regress for numbers, --classify for classes.*public"):
        run(command)
    given = json.loads((folder / "public.json").read_text())
    (folder / "public.json").write_text(json.dumps({**given, "classes": [0, 1]}))
    if odd in "01":
        return
    with pytest.raises(SystemExit, match=r"in line 9, column 'target', that is not among"):
        run(command)
    if odd == "maybe":
        (folder / "public.json").write_text(json.dumps({**given, "target_range": [0, 1]}))
        with pytest.raises(SystemExit, match=r"not finite numbers .*'target' \(line 9\)"):
            run(command)
    assert not (folder / "out").exists()


def test_files_that_are_written_otherwise(folder, capsys, no_picture):
    table = pd.read_csv("data.csv").query("clinic < 'clinic 008'").reset_index(drop=True)
    table = table.replace({"sex": {"female": "fémale"}})
    table["ward"] = pd.array([1, 2, pd.NA, 3] * (len(table) // 4 + 1), "Int64")[: len(table)]
    table["clinic"] = table["clinic"].str[-3:]  # "007"
    table.to_csv("plain.csv", index=False)
    table.to_csv("other.csv", sep=";", decimal=",", encoding="cp1252")
    options = "--sep ; --decimal , --encoding cp1252"
    printed = []
    for file, out, more in (("plain.csv", "plain", ""), ("other.csv", "other", options)):
        run(
            f"fit {file} --task clinic --target pressure --regress --epsilon none --drop level "
            f"--output {out} {KINDS} ward {more}"
        )
        run(f"personalize {out}/public {file} --output {out}/models {more}")
        run(f"predict {out}/models {file} --output {out}.out {more}")
        printed.append(capsys.readouterr().out.replace(out, ""))
    assert printed[0] == printed[1]
    assert (folder / "plain.out").read_text() == (folder / "other.out").read_text()
    settings = json.loads((folder / "other/public/settings.json").read_text())
    assert settings["categories"]["ward"] == ["1", "2", "3"]


_GIVEN = "--task clinic --target pressure --regress --epsilon 4 --public public.json"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("data.csv", "gone.csv"), "gone.csv is not a file"),
        (("--task clinic", "--task klinic"), r"no column \['klinic'\]; its columns are \['clinic'"),
        (("--drop level", "--drop lewel"), "lewel is not a feature"),
        (("--drop level", "--drop pressure"), "pressure is not a feature"),
        (("tasks.csv", "few.csv"), "Not listed in tasks="),
        (("public.json", "data.csv"), "is not JSON"),
        (("public.json", "other.json"), "some of the keys"),
        (("public.json", "wrong.json"), r"scale has \['height'\]"),
        (("public.json", "words.json"), "must be a list of different words"),
        (("public.json", "default.json"), "default of 'sex' is not among its categories"),
        (("public.json", "range.json"), '"target_range" must be two numbers'),
        (("public.json", "scale.json"), "scale has 'sex', which is a category"),
        (("public.json", "classes.json"), "as classes .* and as numbers"),
        (("--drop level", "--category levels"), r"--category has \['levels'\], which are not"),
        (("--output out", "--output ."), "is there already"),
        (("data.csv", "names.csv --category name"), "text of more than 50 kinds"),
        (("data.csv", "blank.csv --category blank"), "'blank' has gaps only"),
        (("data.csv", "names.csv"), r"'name' \(line 2\).*--category NAME.*--missing.*--drop"),
        (("data.csv", "gaps.csv"), r"no target in 1 row\(s\), first in line 5, .*'pressure'"),
        (("data.csv", "inf.csv"), r"not finite numbers in column\(s\) 'pressure' \(line 5\)"),
        (("data.csv", "nobody.csv"), r"no task in 1 row\(s\), first in line 5, .*'clinic'"),
        (("data.csv", "data.csv --encoding lattin"), "lattin is not the name of an encoding"),
        (("data.csv", "fake.parquet"), "fake.parquet is not a Parquet file"),
        (("--regress", "--classify"), "'pressure' is text of more than 50 kinds.*as numbers"),
        (("pressure --regress", "level --regress"), r"'level' \(line 2\)"),
    ],
    ids=lambda value: str(value[1]),
)
def test_errors_say_what_to_do(folder, change, message):
    pd.DataFrame({"clinic": ["clinic 000"]}).to_csv("few.csv", index=False)
    (folder / "other.json").write_text('{"ranges": {}}')
    (folder / "wrong.json").write_text('{"scale": {"height": 1}}')
    public = json.loads((folder / "public.json").read_text())
    words = {
        "words": {"categories": {"sex": [1.0, 2.0]}},
        "default": {"default": {"sex": "x"}},
        "scale": {"scale": {"sex": 1}},
        "range": {"target_range": 7},
    }
    for name, part in words.items():
        (folder / f"{name}.json").write_text(json.dumps({**public, **part}))
    table = pd.read_csv("data.csv")
    table.assign(name=[f"n{k}" for k in range(len(table))]).to_csv("names.csv", index=False)
    table.assign(blank="").to_csv("blank.csv", index=False)
    table.loc[3, "pressure"] = np.nan
    table.to_csv("gaps.csv", index=False)
    table.assign(pressure=table["age"].where(table.index != 3, np.inf)).to_csv("inf.csv")
    table.assign(clinic=table["clinic"].where(table.index != 3)).to_csv("nobody.csv")
    (folder / "fake.parquet").write_bytes(b"PAR1")
    command = f"fit data.csv {_GIVEN} --tasks tasks.csv --drop level --output out"
    if change[1].startswith("level"):
        command = command.replace("--drop level ", "")
    with pytest.raises(SystemExit, match=f"Error: .*{message}"):
        run(command.replace(*change))
    assert not (folder / "out").exists()


def small(rows, name="t.csv", **columns):
    """A table of tasks of ten rows each, of which a few columns are given."""
    rng, n = np.random.default_rng(0), 10 * len(rows)
    table = pd.DataFrame({"s": np.repeat(rows, 10), "x": rng.normal(size=n)})
    table["y"] = table["x"] + rng.normal(size=n)
    table.assign(**columns).to_csv(name, index=False)
    return table


FIT = "fit t.csv --task s --target y --regress --epsilon none"
IDS = [*"01 1 001 1E2 100 1.0 NA None null nan True a A a/b .. . a%2Fb \ufeffb a~b 🏥".split(" ")]
IDS += [" a", "Städtisches Krankenhaus Köln", "国立病院" * 7, "国立病院" * 8, 'say "x", \n']
IDS += ["https://example.org/" + "a" * 260, "https://example.org/" + "a" * 261]


def test_every_id_is_a_task_of_its_own(tmp_path, monkeypatch, no_picture):
    """Also in a file that has this task alone, and in the public list."""
    monkeypatch.chdir(tmp_path)
    table = small(IDS, grade=np.tile(["NA", "1", "01", "None", ""], 2 * len(IDS)))
    pd.DataFrame({"s": IDS}).to_csv("tasks.csv", index=False)
    run(f"{FIT} --tasks tasks.csv --category grade --output out")
    models, _ = read_models(tmp_path / "out/private/models")
    assert sorted(models) == sorted(IDS)
    files = {path.name: path for path in (tmp_path / "out/private/models").iterdir()}
    assert max(len(name.encode()) for name in files) <= 143
    assert {file_name(task) for task in IDS} == set(files)
    settings = json.loads((tmp_path / "out/public/settings.json").read_text())
    assert settings["categories"] == {"grade": ["01", "1", "NA", "None"]}
    run("predict out/private/models t.csv --output all.csv")
    found = pd.read_csv("all.csv", dtype={"s": str}, keep_default_na=False)
    assert found["s"].tolist() == table["s"].tolist()
    written = pd.read_csv("t.csv", dtype=str, keep_default_na=False)
    for task in ("100", "NA", "a~b"):
        here = (table["s"] == task).to_numpy()
        written[here].to_csv("one.csv", index=False)
        main(["predict", str(files[file_name(task)]), "one.csv", "--output", "one.out"])
        assert_array_equal(pd.read_csv("one.out")["prediction"], found["prediction"][here])


@pytest.mark.parametrize("change", ["gap", "stray"])
def test_a_cell_changes_the_kind_of_no_column(tmp_path, monkeypatch, change, no_picture, capsys):
    """One cell of one task: the settings, and predictions of all other rows, are as before."""
    monkeypatch.chdir(tmp_path)
    codes = np.tile(["1", "2", "3", "2", "1"], 16).astype(object)
    ages = np.tile(["20", "30"], 40).astype(object)
    small([f"s{k}" for k in range(8)], grade=codes, age=ages)
    public = {"categories": {"grade": [1, 2, 3]}, "scale": {"x": 1, "age": 10}}
    (tmp_path / "public.json").write_text(json.dumps(public))
    run(f"{FIT} --public public.json --output clean")
    settings = (tmp_path / "clean/public/settings.json").read_text()
    assert json.loads(settings)["numbers"] == ["x", "age"]
    run("predict clean/private/models t.csv --output clean.csv")
    (ages if change == "stray" else codes)[7] = {"gap": "", "stray": "Jane Doe"}[change]
    small([f"s{k}" for k in range(8)], grade=codes, age=ages)
    commands = [
        f"{FIT} --public public.json --output other",
        "predict clean/private/models t.csv --output other.csv",
        "personalize clean/public t.csv --output more",
    ]
    if change == "stray":
        for command in commands:
            with pytest.raises(SystemExit, match=r"'age' \(line 9\)") as stop:
                run(command)
            assert "Jane" not in str(stop.value) + "".join(capsys.readouterr())
        assert not (tmp_path / "other").exists() and not (tmp_path / "more").exists()
        return
    for command in commands:
        run(command)
    assert (tmp_path / "other/public/settings.json").read_text() == settings
    before, after = (pd.read_csv(name)["prediction"] for name in ("clean.csv", "other.csv"))
    assert np.flatnonzero(before != after).tolist() == [7]


@pytest.mark.parametrize("column", ["x", "y"])
def test_numbers_without_a_bound_end_no_private_run(tmp_path, monkeypatch, column, no_picture):
    """Neither the fit nor what it is compared with: others' files are written."""
    monkeypatch.chdir(tmp_path)
    frame = small([f"s{k}" for k in range(8)])
    frame.loc[frame["s"] == "s3", column] = 1e308
    frame.to_csv("t.csv", index=False)
    run(f"{FIT.replace('none', '1')} --output out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["private", "public"]


def test_nothing_is_published_before_all_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small([f"s{k}" for k in range(12)])

    def full(*given):
        raise OSError("No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr("skpmtl.cli.table.picture", full)
        with pytest.raises(SystemExit, match="No space left"):
            run(f"{FIT} --output out")
    assert not any((tmp_path / "out").iterdir())
    run(f"{FIT} --output out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["private", "public"]


def test_rows_without_a_target_can_be_left_out(tmp_path, monkeypatch, capsys, no_picture):
    monkeypatch.chdir(tmp_path)
    table = small([f"s{k}" for k in range(12)])
    table["y"] = table["y"].astype(str)
    table.loc[[3, 47], "y"] = ["", "unknown"]
    table.to_csv("t.csv", index=False)
    table.drop(index=[3, 47]).to_csv("rest.csv", index=False)
    run(f"{FIT} --missing unknown --drop-missing-target --output out")
    assert "2 rows without a target were left out" in capsys.readouterr().out
    run(f"{FIT.replace('t.csv', 'rest.csv')} --output rest")
    for name in ("out", "rest"):
        run(f"predict {name}/private/models t.csv --output {name}.csv")
    assert (tmp_path / "out.csv").read_text() == (tmp_path / "rest.csv").read_text()
    run("personalize out/public t.csv --missing unknown --drop-missing-target --output more")
    table.assign(y="").to_csv("t.csv", index=False)
    with pytest.raises(SystemExit, match="no target at all"):
        run("personalize out/public t.csv --drop-missing-target --output none")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("--target t", "must be two columns"),
        ("--target y --sep ab", "--sep must be one character"),
        ("--target y --sep , --decimal ,", "--sep and --decimal must differ"),
        ("--target y --classify --regress", "not allowed with"),
    ],
)
def test_wrong_options(more, message, capsys):
    with pytest.raises(SystemExit) as stop:
        run(f"fit x.csv --task t --epsilon 1 --output o {more}")
    assert stop.value.code == 2 and message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("fit", "words"),
    [
        (0.5, "the best"),
        (0.699, "as good as every task alone"),
        (0.707, "as good as every task alone"),
        (1.4, "worse than every task alone"),
    ],
)
def test_a_fit_that_is_worse_says_so_in_words(fit, words):
    totals = {"this fit": fit, "every task alone": 0.7, "the mean": 1.0}
    assert words in verdict(totals)
    assert ("budget" in verdict(totals)) == ("worse" in words)
    assert "budget" not in verdict(totals, is_private=False)


def test_characters_that_no_font_has_are_one_warning(tmp_path):
    figure = pytest.importorskip("matplotlib.figure").Figure()
    figure.text(0.1, 0.5, "\U0010fffd \U0010fffc")
    with pytest.warns(UserWarning, match="effects.png lacks characters.*install a font") as said:
        save_picture(figure, tmp_path / "effects.png")
    assert len(said) == 1 and (tmp_path / "effects.png").stat().st_size


def test_tables_of_single_rows_are_fitted_in_their_own_units(tmp_path, monkeypatch, capsys):
    """No column is lost, neither for the fit nor for the pooled model beside it."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    frame = small(range(60), area=rng.gamma(6.0, 25.0, 600), year=rng.integers(1900, 2020, 600))
    frame = pd.read_csv("t.csv").assign(s=np.repeat(np.arange(300), 2))
    frame["y"] = 9.0 * frame["area"] + 20.0 * frame["year"] + 300.0 * frame["y"]
    frame.to_csv("t.csv", index=False)
    run(f"{FIT} --held-out .5 --output out")
    said = dict(re.findall(r"^ *(.*): +([0-9.]+)$", capsys.readouterr().out, re.MULTILINE))
    joint, _, pooled, mean = (float(x) for x in said.values())
    assert joint < 0.5 * mean and pooled < 0.5 * mean
    settings = json.loads((tmp_path / "out/public/settings.json").read_text())
    (tmp_path / "out/public/settings.json").write_text(json.dumps({**settings, "version": 1}))
    with pytest.raises(SystemExit, match="Another version of skpmtl.*fit the table again"):
        run("personalize out/public t.csv --output more")
