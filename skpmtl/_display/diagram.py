"""Text and HTML diagrams of estimators."""

from types import SimpleNamespace

__all__ = ["Documented", "ShowsBest", "ShowsPrivacy"]


class Documented:
    """Diagrams that show no fitted value."""

    def _get_fitted_attr_html(self, doc_link=""):
        """Fitted attributes by name, type and shape.

        A notebook that is passed on must not pass on models or statistics of single tasks.
        """
        shown = super()._get_fitted_attr_html(doc_link)
        for attribute in shown.values():
            attribute["value"] = _NotShown()
        return shown


def _block(kind, shown, names, details, caption=None):
    """What scikit-learn reads to draw a diagram."""
    return SimpleNamespace(
        kind=kind,
        estimators=shown,
        names=names,
        name_details=details,
        name_caption=caption,
        doc_link_label=None,
        dash_wrapped=True,
    )


class _NotShown:
    def __repr__(self):
        return "not shown"


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
        return _block("single", self, name, details, caption)


class ShowsBest(Documented):
    """After a search the diagram is that of the best estimator, with what the search spent."""

    def _sk_visual_block_(self):
        key = "best_estimator_" if hasattr(self, "best_estimator_") else "estimator"
        inner = getattr(self, key)
        name, details = f"{key}: {type(inner).__name__}", str(inner)
        return _block("parallel", [inner], [name], [details])
