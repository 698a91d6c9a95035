"""The plan of the house: imports run one way, and a curator never sees the task side."""

import ast
import re
import sys
from functools import cache
from pathlib import Path

import pytest

import skpmtl
from skpmtl.datasets import make_low_rank_tasks
from tests.helpers.trees import tree

ROOT = Path(skpmtl.__file__).parent
METHODS = ("structures", "model_protected", "clustered", "mean_regularized", "meta", "fedmtl")
# A room may import from those on earlier floors, and from itself.
FLOORS = (
    ("_version", "_docstrings"),
    ("_runtime",),
    ("_kernels",),
    ("tables",),
    ("privacy",),
    ("task",),
    ("exchange",),
    ("solvers",),
    ("_coefficients", "_display", "_uncertainty", "callbacks"),
    ("base",),
    ("course",),
    (*METHODS, "baselines"),
    ("metrics", "datasets", "mixed_models", "networks", "reproduction", "survival"),
    ("model_selection", "preprocessing", "pipeline", "inspection"),
    ("search", "federated", "shards", "planning"),
    ("__init__",),
    ("cli",),
    ("__main__", "warm"),
)
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
FILES = sorted(path for path in ROOT.rglob("*.py") if "__pycache__" not in path.parts)


def imports(path):
    """Modules of the package that a file imports, as tuples of names below skpmtl."""
    here = path.relative_to(ROOT).with_suffix("").parts
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = here[: len(here) - node.level] + tuple((node.module or "").split("."))
            base = tuple(part for part in base if part)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "skpmtl":
            base = tuple(node.module.split(".")[1:])
        elif isinstance(node, ast.Import):
            for name in node.names:
                if name.name.split(".")[0] == "skpmtl":
                    yield tuple(name.name.split(".")[1:]) or ("__init__",)
            continue
        else:
            continue
        if base:
            yield base
        else:
            for name in node.names:
                yield (name.name,) if name.name in FLOOR else ("__init__",)


def room(path):
    return path.relative_to(ROOT).with_suffix("").parts[0]


def test_imports_run_one_way():
    wrong = [
        f"{path.relative_to(ROOT)} imports {'.'.join(found)}"
        for path in FILES
        for found in imports(path)
        if found[0] != room(path) and FLOOR[found[0]] >= FLOOR[room(path)]
    ]
    assert not wrong


@pytest.mark.parametrize("path", [*ROOT.rglob("curator.py")], ids=lambda path: path.parent.name)
def test_a_curator_does_not_know_the_task_side(path):
    for found in imports(path):
        assert "tasks" not in found and "table" not in found, f"it imports {'.'.join(found)}"


def test_exact_solvers_alone_choose_loops_by_the_tasks_at_hand():
    """Elsewhere the listed tasks count: one without rows must not move the bits of the others."""
    at_hand = {"invert", "products"}
    assert at_hand <= {
        node.name
        for node in tree(ROOT / "solvers" / "grams.py").body
        if isinstance(node, ast.FunctionDef)
    }
    wrong = [
        path
        for path in FILES
        if room(path) != "solvers"
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").split(".")[-1] == "grams"
        and at_hand & {name.name for name in node.names}
        or isinstance(node, ast.Call)
        and ast.unparse(node.func).split(".")[0] in at_hand
        or isinstance(node, ast.Attribute)
        and ast.unparse(node) in {f"grams.{x}" for x in at_hand}
    ]
    assert not wrong


def imported(node):
    """Names of other packages that a node imports, or the path of an attribute."""
    if isinstance(node, ast.ImportFrom) and not node.level:
        return [f"{node.module}.{name.name}" for name in node.names]
    if isinstance(node, ast.Import):
        return [name.name for name in node.names]
    path = ast.unparse(node) if isinstance(node, ast.Attribute) else ""
    return [path] if re.fullmatch(r"[\w.]+", path) else []


LIBRARIES = ("sklearn", "numpy", "scipy", "numba", "pandas", "narwhals", "nvflare", "ray", "torch")


def test_no_private_name_of_another_package():
    private = [
        (path.name, name)
        for path in FILES
        for node in ast.walk(tree(path))
        for name in imported(node)
        if name.split(".")[0] in LIBRARIES and any(re.match(r"_(?!_)", k) for k in name.split("."))
    ]
    assert not private


FILES_OF_METHODS = ("estimators", "billboard", "plan", "curator", "tasks")
GENERIC = "exchange shards federated search base tables local rounds solvers".split()


def words(tree):
    """Names, imported names and pieces of text of a module, but for its docstrings."""
    docs = (ast.Module, ast.ClassDef, ast.FunctionDef)
    nodes = list(ast.walk(tree))
    quiet = {id(n.body[0].value) for n in nodes if isinstance(n, docs) and ast.get_docstring(n)}
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in quiet:
            yield node.value
        for field in ("id", "attr", "name", "module", "arg"):
            if isinstance(getattr(node, field, None), str):
                yield getattr(node, field)


@cache
def classes_of_methods():
    return {
        name
        for file in FILES
        if room(file) in METHODS and file.stem in FILES_OF_METHODS
        for name in re.findall(r"^class (\w+)", file.read_text(), re.M)
    }


def test_what_serves_all_methods_names_none():
    """Files, wire, shards and sites read what billboards, task sides and estimators declare."""
    classes = classes_of_methods()
    assert {"MPMTLLowRank", "FedMTLClassifier", "MeanBillboard", "MetaBillboard"} <= classes
    names = re.compile(rf"\b({'|'.join((*METHODS, *classes))})\b")
    named = {
        (path.relative_to(ROOT).as_posix(), name)
        for path in FILES
        if room(path) in GENERIC
        for name in names.findall(" ".join(words(tree(path))))
    }
    assert not named


# What a paper printed stays as it is, whatever becomes of the engine: only the forms of tables,
# the exchange and the accounting of privacy are shared.
OF_ONE_PAPER = "reproduction.fedmtl reproduction.meta reproduction.mp_mtl reproduction.pmtl".split()
SHARED_WITH_PAPERS = {"base", "exchange", "privacy", "tables", "_runtime", "_docstrings"}
SECRET_SHARES = ("fedmtl", "secure")  # FedMTL's servers, for which the paper has a library


@pytest.mark.parametrize("paper", OF_ONE_PAPER)
def test_methods_of_a_paper_need_no_engine(paper):
    own = tuple(paper.split("."))
    files = [path for path in FILES if path.relative_to(ROOT).with_suffix("").parts[:2] == own]
    wrong = {
        (path.name, ".".join(found))
        for path in files
        for found in imports(path)
        if found[0] not in SHARED_WITH_PAPERS
        and found[:2] not in (own, ("reproduction", "published"))
        and (found != SECRET_SHARES or own[-1] != "fedmtl")
    }
    assert files and not wrong


def test_no_two_classes_have_one_name():
    names = [
        node.name
        for path in FILES
        for node in tree(path).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    assert sorted(set(names)) == sorted(names)


def test_warnings_name_the_line_of_the_user():
    """Counted levels go out of date."""
    levels = [
        (path.name, ast.unparse(node.value))
        for path in FILES
        if "stacklevel" in path.read_text()
        for node in ast.walk(tree(path))
        if isinstance(node, ast.keyword) and node.arg == "stacklevel"
    ]
    assert len(levels) > 9 and {value for _, value in levels} == {"users_line()"}, levels


@pytest.mark.parametrize("name, most", [("PrivateMTL", 27), ("DPMetaInit", 31)])
@pytest.mark.filterwarnings("ignore::skpmtl.PrivacyLeakWarning")  # a fixed seed
def test_private_fits_enter_few_files(name, most):
    X, y, task = make_low_rank_tasks(n_tasks=12, n_samples=30, n_features=4, random_state=0)
    est, found = getattr(skpmtl, name)(tasks=range(12), random_state=0), set()
    est.fit(X, y, task=task)
    sys.setprofile(lambda frame, *_: found.add(frame.f_code.co_filename))
    try:
        est.fit(X, y, task=task)
    finally:
        sys.setprofile(None)
    found = {path for path in found if Path(path).is_relative_to(ROOT)}
    assert 10 < len(found) <= most + 1  # one more reads seeds
