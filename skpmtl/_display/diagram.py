"""Text and HTML diagrams of estimators."""

from copy import copy
from functools import cache
from importlib.metadata import PackageNotFoundError, metadata

import numpy as np

from .._runtime.compat import PrettyPrinter, VisualBlock

__all__ = ["Documented", "ShowsBest", "ShowsPrivacy"]

MOST_IDS = 6  # of the public list of tasks that are shown


@cache
def documentation():
    """Address of the documentation in the metadata of the installed package; "" without one."""
    try:
        urls = metadata("skpmtl").get_all("Project-URL") or ()
    except PackageNotFoundError:
        return ""
    named = dict(url.split(", ", 1) for url in urls)
    site = named.get("Documentation", "").rstrip("/")
    return "" if ".example/" in f"{site}/" else site  # not filled in yet


class Documented:
    """Diagrams that link to the page of the class and show no fitted value.

    Its text, also in a pipeline, has the first and the last of a long list of tasks.
    """

    def __repr__(self, N_CHAR_MAX=700):
        return super().__repr__(N_CHAR_MAX)

    def _get_doc_link(self):
        public = type(self).__module__.split(".")[0] == "skpmtl"
        site = documentation() if public else ""
        return f"{site}/generated/skpmtl.{type(self).__name__}.html" if site else ""

    def _get_fitted_attr_html(self, doc_link=""):
        """Fitted attributes by name, type and shape.

        A notebook that is passed on must not pass on models or statistics of single tasks.
        """
        shown = super()._get_fitted_attr_html(doc_link)
        for attribute in shown.values():
            attribute["value"] = _NotShown()
        return shown


class _NotShown:
    def __repr__(self):
        return "not shown"


class _Ids(list):
    def __repr__(self):
        return f"[{self[0]!r}, ..., {self[-1]!r}]"


def _print_estimator(printer, estimator, *args):
    tasks = getattr(estimator, "tasks", None)
    if not isinstance(tasks, (str, range)) and hasattr(tasks, "__len__") and len(tasks) > MOST_IDS:
        estimator, ids = copy(estimator), np.asarray(tasks, dtype=object).ravel()
        estimator.tasks = _Ids(ids[[0, -1]])
    PrettyPrinter._pprint_estimator(printer, estimator, *args)


if PrettyPrinter is not None:
    PrettyPrinter._dispatch[Documented.__repr__] = _print_estimator


class ShowsPrivacy(Documented):
    """After a fit the diagram says what was spent, also inside of pipelines."""

    def _sk_visual_block_(self):
        report = getattr(self, "privacy_", None)
        if report is None:
            caption = None
        elif report.guarantee == "none":
            caption = "no privacy guarantee"
        else:
            caption = (
                f"\u03b5 = {report.epsilon:.4g}, \u03b4 = {report.delta:.4g} per {report.unit} "
                f"({report.adjacency})"
            )
        name, details = type(self).__name__, str(self)
        return VisualBlock("single", self, names=name, name_details=details, name_caption=caption)


class ShowsBest(Documented):
    """After a search the diagram is that of the best estimator, with what the search spent."""

    def _sk_visual_block_(self):
        key = "best_estimator_" if hasattr(self, "best_estimator_") else "estimator"
        inner = getattr(self, key)
        name, details = f"{key}: {type(inner).__name__}", str(inner)
        return VisualBlock("parallel", [inner], names=[name], name_details=[details])
