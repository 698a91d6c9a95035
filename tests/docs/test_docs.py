"""Every example in README, guides and docstrings runs, and the text renders without Sphinx."""

import doctest
import importlib
import re
import sys
from functools import partial
from pathlib import Path
from pydoc import locate

import docutils.core
import docutils.nodes
import docutils.parsers.rst.roles
import matplotlib
import pytest

import skpmtl
import skpmtl.shards

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path(skpmtl.__file__).parent
CONTENTS = ("index", "learn", "howto", "lookup", "measurements", "contribute")
# Without examples.
SPHINX = {*(f"{name}.rst" for name in CONTENTS), "api.rst", "changes.rst", "glossary.rst"}
GUIDES = [path for path in sorted((ROOT / "doc").glob("*.rst")) if path.name not in SPHINX]
EVIDENCE = ("evidence.rst", "real_tables.rst", "unseen.rst")
PLAIN = ("architecture.rst", *EVIDENCE)  # without examples, too
TEXTS = [ROOT / "README.rst", *(path for path in GUIDES if path.name not in PLAIN)]
PAPERS = ("CHANGELOG.rst", "CODE_OF_CONDUCT.rst", "CONTRIBUTING.rst", "SECURITY.rst")
PROSE = [*TEXTS, *(ROOT / name for name in PAPERS)]
PROSE += [
    *(ROOT / "doc" / name for name in EVIDENCE),
    *sorted((ROOT / "doc" / "papers").glob("[!i]*.rst")),
]
MODULES = sorted(
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
    for path in PACKAGE.rglob("*.py")
    if ">>>" in path.read_text(encoding="utf-8")
)
PUBLIC = [
    "skpmtl",
    *(f"skpmtl.{name}" for name in ("datasets", "fedmtl", "inspection", "mean_regularized")),
    *(f"skpmtl.{name}" for name in ("metrics", "model_selection", "networks", "preprocessing")),
    "skpmtl.privacy",
]
NEEDS = {"coming_from_mixed_models.rst": "statsmodels", "mixed.rst": "formulae"}
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
matplotlib.use("Agg")
sys.path.insert(0, str(ROOT / "doc" / "_ext"))
importlib.import_module("results")  # the directive, for docutils
pytestmark = pytest.mark.filterwarnings("error:The noise of this fit is reproducible")


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_examples_in_texts(path):
    if path.name in NEEDS:
        pytest.importorskip(NEEDS[path.name], reason=f"needs {NEEDS[path.name]}")
    result = doctest.testfile(str(path), module_relative=False, optionflags=FLAGS)
    assert result.failed == 0
    assert result.attempted > 5


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings(name):
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        if "pip install skpmtl[" not in str(error):
            raise
        pytest.skip(str(error))
    result = doctest.testmod(module, optionflags=FLAGS)
    assert result.failed == 0


@pytest.mark.parametrize("path", PROSE, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_texts_render(path):
    """docutils without Sphinx, as package indexes render a README; any warning is an error.

    Only pages of the documentation may link: to pages that exist, and to names of the API page.
    """
    docutils.parsers.rst.roles.register_local_role("doc", partial(_link, path.parent))
    docutils.parsers.rst.roles.register_local_role("class", _name)
    docutils.parsers.rst.roles.register_local_role("func", _name)
    of_site = ROOT / "doc" in path.parents
    assert of_site or not re.search(":(doc|class|func):", path.read_text())
    settings = {"halt_level": 2, "report_level": 5, "file_insertion_enabled": of_site}
    tree = docutils.core.publish_doctree(
        path.read_text(), source_path=str(path), settings_overrides=settings
    )
    assert tree.next_node(docutils.nodes.title) is not None


def _link(folder, name, rawtext, text, lineno, inliner, options=None, content=()):
    target = re.fullmatch(r"(?:.*<)?([\w/.]+)>?", text, re.DOTALL)[1]
    if target.startswith("auto_examples/"):
        script = target.removeprefix("auto_examples/") + ".py"
        exists = target.endswith("/index") or (ROOT / "doc" / "examples" / script).exists()
    else:
        exists = (folder / f"{target}.rst").exists()
    assert exists, text
    return [docutils.nodes.literal(rawtext, text)], []


def _name(name, rawtext, text, lineno, inliner, options=None, content=()):
    listed = (ROOT / "doc" / "api.rst").read_text().split()
    assert text.startswith("~skpmtl.") and text.removeprefix("~skpmtl.") in listed, text
    return [docutils.nodes.literal(rawtext, text)], []


def test_readme_names_commands_and_files_that_exist():
    text = (ROOT / "README.rst").read_text()
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"make ([a-z-]+)", text):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    for name in re.findall(r"``(doc/[\w/]+(?:\.rst)?|benchmarks/[\w/]*(?:\.csv)?)``", text):
        assert (ROOT / name).exists(), name


def test_every_public_name_has_a_page():
    text = (ROOT / "doc" / "api.rst").read_text()
    modules = {module: importlib.import_module(module) for module in PUBLIC}
    names = re.findall(r"^   ([\w.]+)$", text, re.MULTILINE)
    listed = [locate(f"skpmtl.{name}") for name in names]
    missing = [
        f"{module}.{name}"
        for module in PUBLIC
        for name in modules[module].__all__
        if callable(of := getattr(modules[module], name)) and of not in listed  # no constant
    ]
    assert missing == []
    assert len(names) == len(set(names))


def test_every_guide_is_in_the_table_of_contents():
    pages = [(ROOT / "doc" / f"{name}.rst").read_text() for name in CONTENTS]
    entries = [name for page in pages for name in re.findall(r"^   ([\w/]+)$", page, re.MULTILINE)]
    assert len(entries) == len(set(entries))
    assert {path.stem for path in GUIDES} <= set(entries)
    for entry in set(entries) - {"auto_examples/index"}:
        assert (ROOT / "doc" / f"{entry}.rst").exists(), entry


def test_links_into_the_gallery_lead_somewhere():
    scripts = {path.stem for path in (ROOT / "doc" / "examples").glob("plot_*.py")}
    pages = [*(ROOT / "doc").glob("*.rst"), *(ROOT / "doc" / "examples").glob("*.py")]
    linked = {name for path in pages for name in re.findall(r"\bplot_\w+", path.read_text())}
    assert linked <= scripts
    assert len(scripts) >= 9
