"""What the package imports is what pyproject.toml declares, and files it names exist."""

import ast
import importlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import skpmtl
from tests.helpers.trees import tree

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = Path(skpmtl.__file__).parent
if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli", reason="needs tomllib (Python 3.11)")

MODULES = {"scikit-learn": "sklearn", "dp-accounting": "dp_accounting", "pillow": "PIL"}


def declared():
    """-> (modules of the dependencies, those of the extras that users install)."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    def modules(requirements):
        names = (re.match(r"[A-Za-z0-9_.-]+", text)[0] for text in requirements)
        return {MODULES.get(name, name) for name in names} - {"skpmtl"}  # an extra of its own

    extras = {
        name: modules(requirements)
        for name, requirements in project["optional-dependencies"].items()
        if name not in ("test", "doc", "lint")
    }
    return modules(project["dependencies"]), set().union(*extras.values())


def imports(tree):
    """Pairs (module, whether it is imported as soon as the file is)."""

    def visit(node, at_once):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name.split(".")[0], at_once
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module.split(".")[0], at_once
        elif isinstance(node, ast.Call) and "import_module" in vars(node.func).values():
            if isinstance(node.args[0], ast.Constant) and node.args[0].value[0] != ".":
                yield node.args[0].value.split(".")[0], False
        deeper = at_once and not isinstance(
            node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.Try)
        )
        for child in ast.iter_child_nodes(node):
            yield from visit(child, deeper)

    return set(visit(tree, True))


def test_imports_are_declared():
    always, extras = declared()
    found = set()
    for path in sorted(PACKAGE.rglob("*.py")):
        for name, at_once in imports(tree(path)):
            if name in sys.stdlib_module_names | {"skpmtl", "tomllib"}:
                continue
            found.add(name)
            assert name in always or (name in extras and not at_once), (
                f"{path.relative_to(PACKAGE)} imports {name}: declare it in pyproject.toml, as a "
                "dependency, or as an extra if it is imported only when it is needed"
            )
    assert always | extras == found


def test_an_import_takes_nothing_along_that_few_fits_need():
    """Each of these is a tenth of a second of every process."""
    program = (
        "import sys, sklearn.linear_model, numba; before = set(sys.modules); import skpmtl; "
        "print(*set(sys.modules) - before); import numpy as np; X = np.eye(20, 2)\n"
        "skpmtl.FedMTLRegressor(n_rounds=1, learning_rate=.1).fit(X, X, client=[0, 1] * 10)\n"
        "print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    found, fitted = (set(line.split()) for line in done.stdout.splitlines())
    assert "skpmtl" in found and not fitted & {"torch", "cryptography", "matplotlib"}
    assert not found & {
        "matplotlib",
        "pandas",
        "scipy.io",
        "sklearn.datasets",
        "sklearn.decomposition",
        "sklearn.ensemble",
        "sklearn.feature_extraction",
        "sklearn.impute",
        "sklearn.neighbors",
        "torch",
        "urllib.request",
    }


@pytest.mark.parametrize(
    "name",
    ["CONTRIBUTING.rst", "README.rst", "Makefile", ".ci/run", ".ci/release", "tests/processors.py"],
)
def test_files_that_are_named_exist(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    named = re.findall(r"(?<![\w./-])(?:skpmtl|tests|benchmarks|doc)/[\w/]+\.(?:py|rst)", text)
    # The package may be installed elsewhere.
    roots = {path: PACKAGE.parent if path.startswith("skpmtl/") else ROOT for path in named}
    assert [path for path, root in roots.items() if not (root / path).is_file()] == []


def test_source_distribution_has_all_files_of_the_repository():
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("needs git and a clone")
    listed = subprocess.run(
        ["git", "-c", f"safe.directory={ROOT}", "ls-files"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    lines = (ROOT / "MANIFEST.in").read_text(encoding="utf-8").splitlines()
    rules = [(rule, names) for rule, *names in map(str.split, lines)]
    assert {rule for rule, names in rules} <= {"include", "graft", "prune", "global-exclude"}

    def named(rule):
        return {name for one, names in rules for name in names if one == rule}

    def included(path):
        above = {folder.as_posix() for folder in path.parents}
        grafted = named("graft") & above and not named("prune") & above
        return path.as_posix() in named("include") or grafted

    left_out = [name for name in listed.stdout.splitlines() if not included(Path(name))]
    assert listed.stdout and left_out == []
    assert named("global-exclude") == {"__pycache__", "*.py[cod]", "*.nb[ic]"}


def test_citation_and_readme_have_the_same_papers():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    readme = (ROOT / "README.rst").read_text(encoding="utf-8")
    dois = set(re.findall(r"doi: (\S+)", citation))
    assert dois and dois == set(re.findall(r"doi:(\S+)", readme))


def test_the_changelog_begins_with_the_version():
    line = rf"\A.*\n=+\n\n{re.escape(skpmtl.__version__)}( \(unreleased\))?\n-+\n"
    assert re.search(line, (ROOT / "CHANGELOG.rst").read_text(encoding="utf-8"))


def test_workflows_run_targets_on_all_supported_pythons():
    files = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    text = "\n".join(path.read_text(encoding="utf-8") for path in files)
    used = set(re.findall(r"\bmake (\w[\w-]*\w)", text))
    used |= {f"test-{name}" for name in re.findall(r"target: ([\w-]+)", text)}
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"[\w-]+", re.search(r"\.PHONY:((?:.*\\\n)*.*)", makefile)[1]))
    assert used and used <= targets
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    listed = re.findall(r"Python :: (3\.\d+)", " ".join(project["classifiers"]))
    minors = [int(version.split(".")[1]) for version in listed]
    assert minors == list(range(minors[0], minors[-1] + 1))
    assert f">={listed[0]}" == project["requires-python"]
    assert re.findall(r'"(3\.\d+)"', re.search(r"python: \[(.*)\]", text)[0]) == listed


PUBLIC = "datasets exchange federated fedmtl inspection metrics "
PUBLIC += "model_selection networks pipeline planning preprocessing privacy reproduction search "
PUBLIC = (PUBLIC + "shards survival").split()


@pytest.mark.parametrize("name", PUBLIC)
def test_public_modules_show_their_public_names_alone(name):
    module = importlib.import_module(f"skpmtl.{name}")
    assert set(dir(module)) == set(module.__all__)
    assert all(hasattr(module, public) for public in module.__all__)


def test_the_front_door_has_no_method_of_a_paper():
    assert not set(skpmtl.reproduction.__all__) & set(skpmtl.__all__)
    with pytest.raises(AttributeError, match="skpmtl.reproduction"):
        getattr(skpmtl, "PublishedPMTL")  # noqa: B009
    assert set(skpmtl.__all__) < set(dir(skpmtl)) <= {*skpmtl.__all__, *PUBLIC}
