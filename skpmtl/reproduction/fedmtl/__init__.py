"""FedMTL as published by Sen and Borcea.

The rounds are plain: read `aggregation.py` next to section 4.2 of the paper, and `rounds.py` next
to Algorithm 1. For everyday use take `skpmtl.FedMTLClassifier`.

References
----------
P. Sen, C. Borcea, "FedMTL: privacy-preserving federated multi-task learning", ECAI, 2024.
"""

from .data import dirichlet_sizes, load_celeba, make_faces, make_scenes, split_rows, task_sets
from .estimators import PublishedFedMTL
from .network import PublishedFedMTLNetwork, lenet, mobilenet_v2, segnet
from .outputs import mean_iou

__all__ = [
    "PublishedFedMTL",
    "PublishedFedMTLNetwork",
    "dirichlet_sizes",
    "lenet",
    "load_celeba",
    "make_faces",
    "make_scenes",
    "mean_iou",
    "mobilenet_v2",
    "segnet",
    "split_rows",
    "task_sets",
]
__dir__ = __all__.copy
