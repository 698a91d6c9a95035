"""The tasks of a table, by the kind of their targets."""

from ..tables.table import differences
from .personal import TaskModels
from .scores import ScoreModels


def models_of(table, public_init=None):
    """`TaskModels` of real targets, `ScoreModels` of classes and counts.

    `public_init` is the public initial model, to which all models are differences.
    """
    kind = ScoreModels if table.has_log_loss else TaskModels
    return kind(differences(table, public_init))
