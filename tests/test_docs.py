"""Every example in README, guides and docstrings runs, and the text renders without Sphinx."""

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import docutils.core
import docutils.nodes
import matplotlib
import pytest

import skpmtl

ROOT = Path(__file__).resolve().parents[1]
TEXTS = [ROOT / "README.rst", *sorted((ROOT / "doc").glob("*.rst"))]
PROSE = [*TEXTS, ROOT / "CHANGELOG.rst", ROOT / "CONTRIBUTING.rst"]
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(skpmtl.__path__, "skpmtl.")
    if not module.name.endswith("__main__")
)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
matplotlib.use("Agg")


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_examples_in_texts(path):
    result = doctest.testfile(str(path), module_relative=False, optionflags=FLAGS)
    assert result.failed == 0
    assert result.attempted > 5


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings(name):
    result = doctest.testmod(importlib.import_module(name), optionflags=FLAGS)
    assert result.failed == 0


@pytest.mark.parametrize("path", PROSE, ids=lambda path: path.name)
def test_texts_render(path):
    """docutils without Sphinx, as package indexes render a README; any warning is an error."""
    settings = {"halt_level": 2, "report_level": 5, "file_insertion_enabled": False}
    tree = docutils.core.publish_doctree(path.read_text(), settings_overrides=settings)
    assert tree.next_node(docutils.nodes.title) is not None


def test_readme_names_commands_and_files_that_exist():
    text = (ROOT / "README.rst").read_text()
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"make ([a-z-]+)", text):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    for name in re.findall(r"``(doc/\w+\.rst|benchmarks/)``", text):
        assert (ROOT / name).exists(), name
