"""Features for effects that are not straight lines, from public knots or a public seed.

Both need the public range of the columns, [-1, 1] in this suite, and read no row to be fitted.
"""

import numpy as np
from sklearn.kernel_approximation import RBFSampler
from sklearn.preprocessing import SplineTransformer

_KNOTS = np.linspace(-1.0, 1.0, 4)
_COMPONENTS = 100


def splines(X, numeric):
    """Quadratic B-splines of each numeric column, with four knots; others as they are."""
    if not numeric.any():
        return X
    knots = np.repeat(_KNOTS[:, None], numeric.sum(), axis=1)
    curves = SplineTransformer(
        degree=2, knots=knots, extrapolation="linear", include_bias=False
    ).fit_transform(X[:, numeric])
    return np.column_stack([X[:, ~numeric], curves])


def random(X, numeric):
    """The columns, and 100 random Fourier features of a Gaussian kernel on all of them."""
    waves = RBFSampler(gamma=1.0, n_components=_COMPONENTS, random_state=0).fit_transform(X)
    return np.column_stack([X, waves])


FEATURES = {"splines": splines, "random": random}
