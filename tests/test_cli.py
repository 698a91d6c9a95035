"""A table from the shell: what is written where, and that files predict as the pipeline does."""

import json
import re
import sys

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skpmtl import load_billboard
from skpmtl.__main__ import main
from skpmtl.cli.columns import Columns
from skpmtl.datasets import make_clinics
from skpmtl.privacy import PrivacyReport

NAMES = ["age", "weight", "visits", "sex", "smoker", "referral"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with two tables, a public list of tasks and public values; the clinics of both."""
    clinics = make_clinics(70, (8, 30), random_state=0)
    table = clinics.data.assign(pressure=clinics.target)
    table["level"] = np.where(table["pressure"] > 138, "high", np.where(
        table["pressure"] < 124, "low", "fair"))  # fmt: skip
    late = table["clinic"] >= "clinic 060"
    table[~late].to_csv(tmp_path / "data.csv", index=False)
    table[late].to_csv(tmp_path / "late.csv", index=False)
    clinics.tasks[:60].to_csv(tmp_path / "tasks.csv")
    public = {"categories": clinics.categories}
    public["scale"] = {"age": 15.0, "weight": 15.0, "visits": 2.0}
    public["default"] = {"weight": 80.0}
    public["classes"] = ["fair", "high", "low"]
    (tmp_path / "public.json").write_text(json.dumps(public))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(command):
    main(command.split())


@pytest.fixture
def no_picture(monkeypatch):
    """Pictures take most of the time of a small fit."""
    monkeypatch.setattr("skpmtl.cli.table.picture", lambda *given: False)


def at_home(folder, target):
    """Models of the late clinics by the estimators themselves; their predictions."""
    settings = json.loads((folder / "out/public/settings.json").read_text())
    assert settings.pop("target") == target
    columns, late = Columns.from_dict(settings), pd.read_csv(folder / "late.csv")
    model = columns.pipeline(load_billboard(folder / "out/public/billboard.npz"))
    rows = model[:-1].fit_transform(columns.of_table(late))
    return model[-1].personalize(rows, late[target]).predict(rows)


@pytest.mark.parametrize(("module", "file"), [("pandas", "data.csv"), ("pyarrow", "data.parquet")])
def test_what_tables_need_is_named(folder, module, file, monkeypatch):
    (folder / "data.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(SystemExit, match=r'pip install "skpmtl\[tables\]"'):
        run(f"fit {file} --task clinic --target pressure --epsilon 1 --output out")


def test_regression(folder, capsys):
    run("fit data.csv --task clinic --target pressure --epsilon 4 --tasks tasks.csv "
        "--public public.json --drop level --method low-rank --output out")  # fmt: skip
    printed = capsys.readouterr()
    assert "Warning" not in printed.err
    joint, alone = (float(x) for x in re.findall(r": +(0\.\d+)$", printed.out, re.MULTILINE))
    assert joint < alone < 1.2
    public, private = folder / "out/public", folder / "out/private"
    report = PrivacyReport.from_json((public / "privacy.json").read_text())
    assert (report.epsilon, report.unit) == (4.0, "task")
    assert (public / "privacy.txt").read_text() == f"{report}\n"
    assert report._repr_html_() in (public / "privacy.html").read_text()
    # Public are the given values and the names of columns, and no name of a clinic.
    settings = json.loads((public / "settings.json").read_text())
    given = json.loads((folder / "public.json").read_text())
    assert settings == {
        "task": "clinic", "numbers": NAMES[:3], "target": "pressure", **given
    }  # fmt: skip
    assert not any(b"clinic 0" in path.read_bytes() for path in public.iterdir())
    errors = pd.read_csv(private / "errors.csv")
    assert len(errors) == 60 and (errors[["error", "error_alone"]] > 0).all(axis=None)
    assert (private / "errors.png").read_bytes().startswith(b"\x89PNG")
    assert len(list((private / "models").iterdir())) == 60

    run("personalize out/public late.csv --output more")
    run("predict more late.csv --output more/predictions.csv")
    found = pd.read_csv(folder / "more/predictions.csv")["prediction"]
    assert_allclose(found, at_home(folder, "pressure"))
    # One model is enough for its own task, also with gaps and words that nobody has heard of.
    own = pd.read_csv(folder / "late.csv").query("clinic == 'clinic 065'")
    own.assign(smoker="pipe", weight=np.nan).to_csv(folder / "own.csv", index=False)
    main(["predict", "more/clinic 065.json", "own.csv", "--output", "own_out.csv"])
    assert pd.read_csv(folder / "own_out.csv")["prediction"].notna().all()


def test_classes(folder, capsys):
    run("fit data.csv --task clinic --target level --epsilon 4 --tasks tasks.csv "
        "--public public.json --drop pressure --method low-rank --output out")  # fmt: skip
    assert "error rate" in capsys.readouterr().out
    run("personalize out/public late.csv --output more")
    run("predict more late.csv --output predictions.csv")
    found = pd.read_csv(folder / "predictions.csv")["prediction"]
    assert_array_equal(found, at_home(folder, "level"))
    model = json.loads((folder / "more/clinic 065.json").read_text())
    assert len(model["intercept"]) == len(model["numbers"]["age"]["coef"]) == 3


def test_public_covariates_about_tasks(folder, capsys):
    covariates = make_clinics(70, (8, 30), random_state=0).tasks
    covariates[60:].to_csv(folder / "late_tasks.csv")
    command = ("fit data.csv --task clinic --target pressure --epsilon 9 --tasks tasks.csv "
               "--public public.json --drop level --method covariates --output out")  # fmt: skip
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


def test_what_is_read_from_rows_is_said(folder, capsys):
    run("fit data.csv --task clinic --target pressure --epsilon 4 --drop level --method low-rank "
        "--output out")  # fmt: skip
    printed, warned = capsys.readouterr()
    assert "--tasks FILE" in warned
    assert "No scale is known of ['age', 'weight', 'visits']" in printed
    assert "categories of 'sex', 'smoker' and 'referral' are read from private rows" in warned
    assert warned.count("are read from private rows") == 1  # of all columns together
    settings = json.loads((folder / "out/public/settings.json").read_text())
    assert settings["categories"]["sex"] == ["female", "male"]
    stated = load_billboard(folder / "out/public/billboard.npz").privacy_.text(None)
    lists = ["the tasks", *(f"the categories of {name!r} were" for name in NAMES[3:])]
    assert lists[0] + " were read from private rows" in stated
    assert " and ".join(lists[1:]).replace(" were and", " and") + " read from private" in stated
    assert " ".join((folder / "out/public/privacy.txt").read_text().split()) == stated


def test_a_fit_that_releases_nothing_says_why(folder, capsys):
    rows = pd.read_csv(folder / "data.csv").query("clinic < 'clinic 005'")
    rows.to_csv(folder / "data.csv", index=False)
    run("fit data.csv --task clinic --target pressure --epsilon 1 --drop level --output out")
    line = next(x for x in capsys.readouterr().out.splitlines() if "epsilon = 0" in x)
    assert "nothing is released, because there are too few tasks for this budget" in line
    stated = (folder / "out/public/privacy.txt").read_text()
    assert "published nothing" in stated and "budget shares" not in stated


@pytest.mark.parametrize("n_tasks", [1, 5])
def test_a_fit_that_releases_nothing_names_the_plan(folder, capsys, n_tasks):
    rows = pd.read_csv(folder / "data.csv").query(f"clinic < 'clinic {n_tasks:03d}'")
    rows.to_csv(folder / "data.csv", index=False)
    run("fit data.csv --task clinic --target pressure --epsilon 1 --drop level --output out")
    printed = capsys.readouterr().out
    assert f"rows of {n_tasks} task" in printed and "nothing is released, because" in printed
    if n_tasks == 1:
        assert "one task, which has nobody to learn from" in printed
        return
    command = re.search(r"python -m skpmtl (plan --tasks \d+ --rows \d+ --features \d+)", printed)
    run(command[1] + " --repeats 1 --epsilon 3")
    assert "epsilon" in capsys.readouterr().out


def test_without_a_budget_nothing_is_promised(folder, capsys):
    run("fit data.csv --task clinic --target pressure --epsilon none --drop level --output out")
    printed = capsys.readouterr()
    assert "NO differential privacy guarantee" in printed.out and "Warning" not in printed.err
    assert "no privacy guarantee" in (folder / "out/public/privacy.html").read_text()


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ("0.0 1.0", "the classes [0, 1]"),
        pytest.param("0 1", "the classes [0, 1] (as numbers: --regress)", marks=pytest.mark.slow),
        pytest.param("True False", "the classes [False, True]", marks=pytest.mark.slow),
        ("yes no", "the classes ['no', 'yes']"),
        pytest.param("1 2", "numbers", marks=pytest.mark.slow),
        pytest.param("0 1 --regress", "numbers", marks=pytest.mark.slow),
        ("3 4 --classify", "the classes [3, 4]"),
        ("True False --regress", "numbers"),
    ],
)
def test_targets_of_two_values(folder, values, said, capsys, no_picture):
    low, high, *more = values.split()
    table = pd.read_csv("data.csv").query("clinic < 'clinic 008'")
    table["target"] = np.where(table["pressure"] < 131, low, high)
    table.drop(columns=["pressure", "level"]).to_csv("two.csv", index=False)
    command = "fit two.csv --task clinic --target target --epsilon none --public public.json "
    public = json.loads((folder / "public.json").read_text())
    del public["classes"]
    (folder / "public.json").write_text(json.dumps(public))
    run(command + " ".join(["--output out", *more]))
    printed = capsys.readouterr().out
    assert f"The target 'target' holds {said}" in printed
    assert ("error rate" in printed) == said.startswith("the classes")
    run("personalize out/public two.csv --output more")
    run("predict more two.csv --output predictions.csv")
    found, y = pd.read_csv("predictions.csv")["prediction"], pd.read_csv("two.csv")["target"]
    assert (
        np.mean(found == y) > 0.6 if "error rate" in printed else np.corrcoef(found, y)[0, 1] > 0.3
    )


@pytest.mark.parametrize(
    ("written", "options"),
    [
        ({"sep": "\t", "encoding": "utf-16"}, "--sep tab --encoding utf-16"),
        (
            {"sep": ";", "decimal": ",", "encoding": "cp1252", "index": True},
            "--sep ; --decimal , --encoding cp1252",
        ),
    ],
)
def test_files_that_are_written_otherwise(folder, written, options, capsys, no_picture):
    table = pd.read_csv("data.csv").query("clinic < 'clinic 008'")
    table = table.replace({"sex": {"female": "fémale"}})
    table.to_csv("other.csv", **{"index": False, **written})
    table.to_csv("same.csv", index=False)
    printed = []
    for name, more in (("same", ""), ("other", options)):
        run(f"fit {name}.csv --task clinic --target pressure --epsilon none --drop level "
            f"--output {name} {more}")  # fmt: skip
        run(f"personalize {name}/public {name}.csv --output {name}/models {more}")
        run(f"predict {name}/models {name}.csv --output {name}.out {more}")
        printed.append(capsys.readouterr().out.replace(name, ""))
    assert printed[0] == printed[1]
    assert (folder / "same.out").read_text() == (folder / "other.out").read_text()


_GIVEN = "--task clinic --target pressure --epsilon 4 --tasks tasks.csv --public public.json"


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
        (("--output out", "--output ."), "is there already"),
        (("data.csv", "names.csv"), "text of more than 50 kinds"),
        (("data.csv", "gaps.csv"), "The target 'pressure' has gaps"),
        (("data.csv", "inf.csv"), "The target 'pressure' has infinite values"),
        (("data.csv", "nobody.csv"), "The task column 'clinic' has gaps"),
        (("data.csv", "empty.csv"), "empty.csv is empty"),
        (("data.csv", "header.csv"), "has a header and no rows"),
        (("data.csv", "ragged.csv"), "has 4 fields in line 3, but 3 before it"),
        (("data.csv", "latin.csv"), "is not written in utf-8: .* --encoding cp1252"),
        (("data.csv", "semicolons.csv"), "seem to be separated by ';': --sep \";\""),
        (("data.csv", "data.csv --encoding lattin"), "lattin is not the name of an encoding"),
        (("data.csv", "fake.parquet"), "fake.parquet is not a Parquet file"),
        (
            (f"data.csv {_GIVEN}", "names.csv --task clinic --target name --epsilon 4"),
            "holds more than 50 kinds of text",
        ),
        (("--public public.json", "--classify"), "50 kinds of numbers: leave out --classify"),
        (
            (f"{_GIVEN} --drop level", "--task clinic --target level --regress --epsilon 4"),
            "holds text, which --regress cannot take",
        ),
    ],
    ids=lambda value: str(value[1]),
)
def test_errors_say_what_to_do(folder, change, message):
    pd.DataFrame({"clinic": ["clinic 000"]}).to_csv("few.csv", index=False)
    (folder / "other.json").write_text('{"ranges": {}}')
    (folder / "wrong.json").write_text('{"scale": {"height": 1}}')
    table = pd.read_csv("data.csv")
    table.assign(name=[f"n{k}" for k in range(len(table))]).to_csv("names.csv", index=False)
    table.loc[3, "pressure"] = np.nan
    table.to_csv("gaps.csv", index=False)
    table.assign(pressure=table["age"].where(table.index != 3, np.inf)).to_csv("inf.csv")
    table.assign(clinic=table["clinic"].where(table.index != 3)).to_csv("nobody.csv")
    table.to_csv("semicolons.csv", sep=";", index=False)
    (folder / "empty.csv").write_text("")
    (folder / "header.csv").write_text("clinic,age,pressure\n")
    (folder / "ragged.csv").write_text("clinic,age,pressure\na,1,2\na,2,3,4\n")
    (folder / "latin.csv").write_bytes("clinic,age,pressure\né,1,2\n".encode("latin-1"))
    (folder / "fake.parquet").write_bytes(b"PAR1")
    command = f"fit data.csv {_GIVEN} --drop level --output out"
    with pytest.raises(SystemExit, match=f"Error: .*{message}"):
        run(command.replace(*change))
    assert not (folder / "out").exists()


def test_errors_of_models(folder):
    with pytest.raises(SystemExit, match="not a model"):
        run("predict public.json late.csv --output x.csv")
    with pytest.raises(SystemExit, match="holds no models|not a model"):
        run("predict . late.csv --output x.csv")
    with pytest.raises(SystemExit):
        run("personalize . late.csv --output more")


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


@pytest.mark.parametrize("epsilon", ["0", "-1", "inf", "much"])
def test_epsilon_is_positive_and_finite(epsilon, capsys):
    with pytest.raises(SystemExit) as stop:
        run(f"fit x.csv --task t --target y --output o --epsilon {epsilon}")
    assert stop.value.code == 2 and "--epsilon" in capsys.readouterr().err
