"""Sphinx configuration; ``make doc`` builds into doc/_build without the network."""

import logging
import sys
from pathlib import Path

import skpmtl

sys.path.insert(0, str(Path(__file__).parent))  # gallery_order
sys.path.insert(0, str(Path(__file__).parent / "_ext"))

logging.getLogger("skpmtl").setLevel(logging.ERROR)  # no page waits for compiled loops

project = "skpmtl"
author = "The skpmtl developers"
copyright = author
version = release = skpmtl.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "results",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "examples"]
templates_path = ["_templates"]
default_role = "code"  # docstrings write `name` for parameters and attributes
# Inherited docstrings refer to labels and terms of scikit-learn's guide.
suppress_warnings = ["ref.ref", "ref.term"]

autosummary_generate = True
autodoc_typehints = "none"  # signatures are for reading; docstrings have the types
numpydoc_show_class_members = False  # the template of a class lists them

html_theme = "pydata_sphinx_theme"
html_title = "skpmtl"
html_static_path = ["_static"]
html_css_files = ["book.css"]
html_show_sourcelink = False
html_theme_options = {"show_prev_next": False, "navigation_with_keys": False}
# A page of the gallery brings its own list of sections, the start page needs none.
html_sidebars = {"index": []}
copybutton_prompt_text = ">>> |\\.\\.\\. |\\$ "
copybutton_prompt_is_regexp = True

sphinx_gallery_conf = {
    "examples_dirs": "examples",
    "gallery_dirs": "auto_examples",
    "backreferences_dir": "generated/backreferences",
    "doc_module": ("skpmtl",),
    "within_subsection_order": "gallery_order.ByDifficulty",
    "download_all_examples": False,
    "show_signature": False,
    "write_computation_times": False,
    "min_reported_time": 1e9,  # seconds on the machine of the build mean nothing
}
