"""What a user writes, for type checkers: ``make lint`` runs mypy over this, nothing runs it.

Every "type: ignore" marks a mistake that must be found; mypy warns of those that are not needed.
"""

from typing import Any, assert_type

import numpy as np
from numpy.typing import NDArray

import skpmtl
from skpmtl.privacy import PrivacyReport

X, y, task = np.zeros((6, 2)), [0, 1, 0, 1, 0, 1], ["a", "a", "b", "b", "c", "c"]
est = skpmtl.PrivateMTL(epsilon=1.0, tasks=["a", "b", "c"], dtype=np.float32)
assert_type(est.fit(X, y, task=task), skpmtl.PrivateMTL)
assert_type(est.personalize(X, y, task), skpmtl.PrivateMTL)
assert_type(est.privacy_, PrivacyReport)
assert_type(est.coef_, NDArray[Any])
assert_type(est.privacy_.summary(), str)
assert_type(skpmtl.DPMetaInitClassifier(classes=[0, 1]).fit(X, y).score(X, y), float)
skpmtl.PrivateMeanRegMTL(epsilon=None, target_range=(0, 1), clusters={"a": 1}, unseen_task="mean")
skpmtl.MPMTLLowRank(0.1, epsilon=None, task_feature="school").fit(X, y)

skpmtl.PrivateMTL(eps=1.0)  # type: ignore[call-arg]
skpmtl.PrivateMeanRegMTL(epsilon="little")  # type: ignore[arg-type]
skpmtl.PrivateMeanRegMTL(adjacency="replace")  # type: ignore[arg-type]
skpmtl.PrivateMeanRegMTLClassifier(target_range=(0, 1))  # type: ignore[call-arg]
est.export_task()  # type: ignore[call-arg]
