"""Columns of files are what is declared, cell by cell, whatever the other cells hold."""

import csv
import datetime
import re
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import skpmtl
from skpmtl.tables.files import TableFile

few = settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)
numbers = st.floats(allow_nan=False, allow_infinity=False)
LOOKING = [
    *"NA None null nan n/a - 01 1 1E2 100 1.0 True 2020-01-01 1e400 a,b Köln 国立病院".split(),
    " x ",
    '"',
    "x\ny",
    "\ufeff",
]


def write(path, header, rows, **form):
    with path.open("w", newline="", encoding=form.get("encoding", "utf-8")) as file:
        writer = csv.writer(file, delimiter=form.get("sep", ","))
        writer.writerows([header, *rows])
    return TableFile(path, **form)


def listed(column):
    return [None if pd.isna(value) else value for value in column]


@few
@given(rows=st.lists(st.tuples(words, numbers), min_size=1, max_size=8))
@example(rows=[(word, 0.5) for word in LOOKING])
@pytest.mark.parametrize(
    "form",
    [{}, {"sep": ";", "decimal": ","}, {"sep": "\t", "encoding": "utf-16"}],
    ids=["plain", "comma", "utf-16"],
)
def test_text_and_numbers_come_back_as_written(tmp_path, form, rows):
    mark = form.get("decimal", ".")
    cells = [(word, repr(x).replace(".", mark)) for word, x in rows]
    table = write(tmp_path / "t.csv", ["t", "x"], cells, **form).read(["x"], {"t": ()})
    assert listed(table["t"]) == [word for word, _ in rows]
    assert table["x"].tolist() == [x for _, x in rows]


@few
@given(word=words)
@example(word="a\rb\nc\r\nd")
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_stray_word_is_named_by_place_only(tmp_path, ending, word):
    word += "~"  # no number has it, and no message
    path = tmp_path / f"t.{ending}"
    if ending == "csv":
        write(path, ["t", "age"], [["a", 1], ["b", word], ["c", 2]])
    else:
        pd.DataFrame({"t": list("abc"), "age": ["1", word, "2"]}).to_parquet(path)
    with pytest.raises(ValueError, match=r"not finite numbers in column\(s\) 'age'") as error:
        TableFile(path).read(["age"], {"t": ()}, remedy="REMEDY")
    assert str(error.value).endswith("REMEDY") and error.value.__context__ is None
    text = str(error.value).replace(str(path), "")
    assert "~" not in text and ("(line 3)" if ending == "csv" else "(row 2)") in text


@pytest.mark.parametrize(
    "cell",
    [*"nan NaN inf -Infinity 1e999 0x1 1_0 1,5 1.5.0 --1 e5 . - True ١ NA".split(), " ", "1 2"],
)
def test_what_is_no_number_is_refused(tmp_path, cell):
    file = write(tmp_path / "t.csv", ["x", "t"], [[1, "a"], [cell, "b"]])
    with pytest.raises(ValueError, match=r"'x' \(line 3\)"):
        file.read(["x"])
    table = TableFile(file.path, missing=(cell,)).read(["x"], {"t": ()})
    assert listed(table["x"]) == [1.0, None]


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("1", 1),
        (" 1.5 ", 1.5),
        ("+2", 2),
        ("-.5", -0.5),
        ("3.", 3),
        ("1E-3", 0.001),
        ("0007", 7),
        ("9007199254740993", 2.0**53),
        ("1e-999", 0),
        ("", None),
    ],
)
def test_forms_of_numbers(tmp_path, cell, value):
    file = write(tmp_path / "t.csv", ["x", "t"], [[cell, "a"]])
    assert listed(file.read(["x"])["x"]) == [value]


def test_gaps_are_empty_cells_and_listed_words(tmp_path):
    rows = [["NA", "NA", "1"], ["", "", ""], ["x", "none", "NA"]]
    path = write(tmp_path / "t.csv", ["a", "b", "x"], rows).path
    table = TableFile(path, missing=("NA",)).read(["x"], {"a": (), "b": {"none"}})
    assert listed(table["a"]) == ["NA", None, "x"]
    assert listed(table["b"]) == ["NA", None, None]
    assert listed(table["x"]) == [1, None, None]


def test_the_line_counts_empty_lines_and_breaks_in_cells(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text('\nt,x\n\n"a\nb",1\n\n"c\nd",oops\n')
    with pytest.raises(ValueError, match=r"\(line 7\)"):
        TableFile(path).read(["x"])
    with pytest.raises(ValueError, match=r"'x' \(line 7\), 't' \(line 4\)"):
        TableFile(path).read(["x", "t"])


KINDS = {
    "integers": (pa.array([1, 2**60 + 1, None]), ["1", str(2**60 + 1), None]),
    "floats": (pa.array([1.0, 1.5, None]), ["1", "1.5", None]),
    "float32": (pa.array([1.0, 0.1, np.nan], pa.float32()), ["1", "0.1", None]),
    "large floats": (pa.array([2.0**53 - 1, -4e15]), [str(2**53 - 1), "-4000000000000000"]),
    "decimals": (pa.array([Decimal("1.00"), Decimal("1.50"), None]), ["1", "1.50", None]),
    "text": (pa.array(["1.0", "", None, "NA"]), ["1.0", None, None, "NA"]),
    "large text": (pa.array(["a", ""], pa.large_string()), ["a", None]),
    "bytes": (pa.array([b"a", None]), ["a", None]),
    "categories": (pa.array(["a", None, "a"]).dictionary_encode(), ["a", None, "a"]),
    "truth": (pa.array([True, False, None]), ["True", "False", None]),
    "nothing": (pa.array([None, None]), [None, None]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_parquet_text_does_not_depend_on_other_rows(tmp_path, kind):
    column, expected = KINDS[kind]
    for rows in (slice(None), *(slice(k, k + 1) for k in range(len(column)))):
        pq.write_table(pa.table({"t": column[rows]}), tmp_path / "t.parquet")
        assert listed(TableFile(tmp_path / "t.parquet").read([], {"t": ()})["t"]) == expected[rows]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, -9, None]),
        pa.array([1.0, -9.0, np.nan]),
        pa.array(["1", "-9", ""]),
        pa.array([Decimal("1.00"), Decimal("-9.00"), None]),
        pa.array(["1", "-9", ""]).dictionary_encode(),
    ],
    ids=lambda column: str(column.type),
)
def test_parquet_numbers(tmp_path, column):
    pq.write_table(pa.table({"x": column}), tmp_path / "t.parquet")
    file = TableFile(tmp_path / "t.parquet")
    assert listed(file.read(["x"])["x"]) == [1, -9, None]
    file = TableFile(file.path, missing=("-9",))
    assert listed(file.read(["x"])["x"]) == [1, None, None]
    assert file.read(["x"])["x"].dtype == np.float64


@pytest.mark.parametrize(
    ("column", "number", "message"),
    [
        (pa.array([2.0**53, 1]), False, "cannot tell neighbouring integers apart"),
        (pa.array([2.0**24], pa.float32()), False, "cannot tell neighbouring integers apart"),
        (pa.array([np.inf]), False, "cannot tell neighbouring integers apart"),
        (pa.array([np.inf]), True, r"\(row 1\)"),
        (pa.array([datetime.date(2020, 1, 1)]), True, "days since a public date"),
        (pa.array([[1]]), True, "not numbers"),
        (pa.array([[1]]), False, "not text"),
        (pa.array([b"\xff"]), False, "is not string"),
    ],
)
def test_types_that_are_refused(tmp_path, column, number, message):
    pq.write_table(pa.table({"x": column}), tmp_path / "t.parquet")
    declared = (["x"], {}) if number else ([], {"x": ()})
    with pytest.raises(ValueError, match=message):
        TableFile(tmp_path / "t.parquet").read(*declared)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (b"t,x\n", "has a header and no rows"),
        (b"t,x\nsecret,1\nsecret,2,3\n", "has 3 fields in line 3, but 2 before it"),
        (b"t,x\n\nsecret,1\nsecret\n", "has 1 fields in line 4, but 2 before it"),
        ("t,x\nsecrét,1\n".encode("latin-1"), "not written in utf-8: .* --encoding cp1252"),
        ("t,é\nsecret,1\n".encode("latin-1"), "not written in utf-8"),
        (b"t;x\nsecret;1\n", "has no column .* separated by ';': --sep \";\""),
        (b"t,x,x\nsecret,1,2\n", r"more than one column \['x'\]: rename"),
    ],
)
def test_faults_of_files_are_named_without_values(tmp_path, content, message):
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(ValueError, match=message) as error:
        TableFile(tmp_path / "t.csv").read(["x"], {"t": ()})
    assert "secr" not in str(error.value) and error.value.__context__ is None


def test_only_columns_that_are_read_must_be_as_declared(tmp_path):
    file = write(tmp_path / "t.csv", ["", "t", "x", "x2"], [[1, "a", 2, "oops"], [2, "b", 3, ""]])
    assert file.names == ["t", "x", "x2"]  # R writes numbers of rows, without a name
    assert file.read(["x"], {"t": ()}).to_dict("list") == {"t": ["a", "b"], "x": [2, 3]}


def test_no_other_module_reads_types_from_rows():
    """Readers and conversions that guess; Parquet parts have a schema."""
    guess = re.compile(
        r"\b(read_csv|read_table|read_excel|genfromtxt|loadtxt|infer_objects|convert_dtypes"
        r"|to_numeric|read_parquet)\("
    )
    package = Path(skpmtl.__file__).parent
    found = {
        path.relative_to(package).as_posix(): guess.findall(path.read_text(encoding="utf-8"))
        for path in package.rglob("*.py")
    }
    assert {path: names for path, names in found.items() if names} == {}
