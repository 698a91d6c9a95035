"""Networks in private rounds on images of writers, beside linear models and a public start.

    python -m benchmarks.reproduce.networks_images [--quick] [--repeats R] [--output FILE.csv]
                                                   [--jobs J] [--leaf FOLDER [--fonts FOLDER]]
                                                   [--tune]

The study of section 5 of Hu, Wu and Smith (TMLR 2023) with a CNN: the released network, and four
ways to make it personal. FEMNIST is not distributed with this package: with ``--leaf`` a folder
of LEAF's JSON is read, 70 % of the images of every writer for training. Without it writers are
made of the 8 x 8 digits of scikit-learn: 200 writers with a slant, turn, size and thickness of
their own and five of the ten digits, 20 images for training and 10 for the test; images of the
test come from other digits than those of training, and 400 digits belong to nobody: they are
public.

Public start: the same CNN, trained on the public digits in many styles (no writer is among them),
with ``--leaf`` on digits and letters in fonts: one of every family below ``--fonts``, or those that
matplotlib brings. The last hidden layer of a public network gives the features of the linear
models; with ``--leaf`` that is a wider one, of which nothing has to be released.

Methods, all of them with adjacency "zero-out" and delta 1 / number of writers:

- "linear, pixels" and "linear, features": `PrivateMeanRegMTLClassifier` with its defaults, on the
  images and on the output of `TorchFeatures`; "linear, public head": the same features, and the
  last layer of the public network as ``init=``;
- "cnn, scratch" and "cnn, public start": `TorchMeanRegClassifier`, on a GPU where there is one. Its
  constants (clip_norm, learning_rate, lam) are those with the best personal networks ("mean-reg")
  on made writers of two other seeds, at epsilon 2 for all budgets and for none; ``--tune`` writes
  that table, ``results/networks_images_tuning.csv``, and the others read it, so that nothing is
  tuned on LEAF's writers. Rows "released" are of w~ itself, the others of its personalisations,
  as far as left-out rows tell (`personal_folds`), and one of them all of the way;
- "alone": the same network fine-tuned by every writer from its start, nothing released; "alone,
  linear": `LocalOnlyClassifier`; "public network": its start as it is.

The score is the accuracy over all test images. ``noise over way`` is public: the noise of a
release over the length of the way that all rounds can make.
"""

import csv
import itertools
import logging
import math
import warnings
from functools import cache, partial
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from skpmtl import PrivacyLeakWarning, PrivateMeanRegMTLClassifier
from skpmtl.datasets import load_leaf
from skpmtl.networks import TorchFeatures, TorchMeanRegClassifier
from skpmtl.privacy.accounting import gdp_mu
from skpmtl.reproduction import LocalOnlyClassifier

from ..run import write_rows
from . import RESULTS, computed, script
from .networks_plots import draw

FIELDS = ("data", "method", "personalization", "epsilon", "noise over way", "mean", "sd", "repeats")
EPSILONS = (0.1, 0.4, 2.0, None)
LINEAR = ("pixels", "features", "public head")
PERSONAL = ("none", "mean-reg", "finetune", "symmetrized-kl", "ewc")
LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"  # as LEAF numbers them
TUNING = "networks_images_tuning.csv"
TUNED = ("clip_norm", "learning_rate", "lam")
# Values of TUNED, for both starts, and then beyond the best of them.
COARSE = (0.25, 0.5, 1.0, 2.0), (0.03, 0.1), (0.01, 0.1, 1.0)
GRID = {
    "scratch": (COARSE, ((4.0, 8.0), (0.1,), (0.1,)), ((4.0,), (0.3,), (0.1,))),
    "public start": (COARSE,),
}


# ----------------------------------------------------------------------------------- data
def styled(images, style):
    """Images 8 x 8, slanted, turned and scaled about their middle, and made thicker or thinner."""
    turn, slant, size, thick = style
    shear = np.array([[1.0, slant], [0.0, 1.0]])
    turned = np.array([[math.cos(turn), -math.sin(turn)], [math.sin(turn), math.cos(turn)]])
    grid = np.stack(np.meshgrid(np.arange(8.0), np.arange(8.0), indexing="ij"), axis=-1) - 3.5
    at = grid.reshape(-1, 2) @ (turned @ shear).T / size + 3.5
    low = np.clip(np.floor(at).astype(int), 0, 6)
    part = np.clip(at - low, 0.0, 1.0)
    inside = ((at > -1) & (at < 8)).all(axis=1)
    out = 0.0
    for i, j in itertools.product((0, 1), (0, 1)):
        weight = np.abs(1 - i - part[:, 0]) * np.abs(1 - j - part[:, 1])
        out = out + weight * images[:, low[:, 0] + i, low[:, 1] + j]
    return np.clip((out * inside).reshape(-1, 64) ** thick, 0.0, 1.0)


def styles(rng, n):
    return np.column_stack(
        [
            rng.normal(0, 0.25, n),
            rng.normal(0, 0.35, n),
            rng.uniform(0.75, 1.2, n),
            rng.uniform(0.5, 1.6, n),
        ]
    )


def digits():
    images, y = load_digits(return_X_y=True)
    return images.reshape(-1, 8, 8) / 16.0, y


def made_writers(seed, quick=False):
    """-> training and test: X, y, task; side of an image, number of classes"""
    images, y = digits()
    rng, m = np.random.default_rng(seed), 30 if quick else 200
    order = np.random.default_rng(0).permutation(len(y))[400:]
    pools = order[:900], order[900:]
    parts = [], []
    for k, style in enumerate(styles(rng, m)):
        own = rng.choice(10, 5, replace=False)
        for part, pool, n in zip(parts, pools, (20, 10), strict=True):
            pick = rng.choice(pool[np.isin(y[pool], own)], n, replace=False)
            part.append((styled(images[pick], style), y[pick], np.full(n, k)))
    return [tuple(map(np.concatenate, zip(*part, strict=True))) for part in parts], 8, 10


def leaf_writers(folder, seed, quick=False):
    """The same of LEAF's FEMNIST; images are cut to their middle 20 x 20."""
    leaf = load_leaf(folder)
    X, y = middle(1.0 - leaf.data.reshape(-1, 28, 28)), leaf.target
    _, task = np.unique(leaf.task, return_inverse=True)
    rng = np.random.default_rng(seed)
    train = np.zeros(len(y), dtype=bool)
    for k in range(30 if quick else task.max() + 1):
        mine = np.flatnonzero(task == k)
        train[rng.permutation(mine)[: max(round(0.7 * len(mine)), 1)]] = True
    known = np.isin(task, task[train])
    parts = [(X[part], y[part], task[part]) for part in (train, known & ~train)]
    return parts, 20, len(LETTERS)


def middle(images):
    return images[:, 4:24, 4:24].reshape(len(images), -1)


def page_of(face, letter):
    """A letter somewhere on a page of 112 x 112 points."""
    from PIL import Image, ImageDraw

    page = Image.new("L", (112, 112))
    ImageDraw.Draw(page).text((56, 56), letter, 255, face, anchor="mm")
    return page


def typefaces(folder=None):
    """Fonts below a folder that have all letters, one of every family; None: of matplotlib."""
    import matplotlib
    from fontTools.ttLib import TTFont, TTLibError
    from PIL import ImageFont

    if folder is None:
        folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
        kinds = "DejaVuSans[-.M]*", "DejaVuSerif[-.]*", "STIXGeneral[.BI]*", "cm[rst][0-9it]*.ttf"
        paths = [path for kind in kinds for path in sorted(folder.glob(kind))]
        return [ImageFont.truetype(str(path), 56) for path in paths if "Bol" not in path.name]
    logging.getLogger("fontTools").setLevel(logging.ERROR)
    found = {}
    # Plain faces have the shortest names.
    for path in sorted(Path(folder).rglob("*.[ot]tf"), key=lambda path: (len(path.stem), path)):
        try:
            with path.open("rb") as file, TTFont(file, lazy=True) as font:
                family = str(font["name"].getDebugName(1))
                whole = {*map(ord, LETTERS)} <= {*(font.getBestCmap() or ())}
            if whole and family not in found:
                face = ImageFont.truetype(str(path), 56)
                if all(page_of(face, letter).getbbox() for letter in LETTERS):
                    found[family] = face
        except (OSError, TTLibError, LookupError, ValueError, AssertionError):
            continue  # nothing that can be read
    return [found[family] for family in sorted(found)]


@cache
def glyphs(n, folder=None, seed=0):
    """Images as of `leaf_writers`, of random letters in random fonts and hands; and labels.

    How large and thick they are was set by eye, beside images of FEMNIST.
    """
    from PIL import Image, ImageFilter

    fonts = typefaces(folder)
    rng, drawn = np.random.default_rng(seed), {}
    # Half of them digits, as in the forms that NIST had filled in.
    out, y = np.empty((n, 28, 28)), rng.integers(0, np.where(rng.random(n) < 0.4, 10, len(LETTERS)))
    for image, label, (turn, slant, size, _) in zip(out, y, styles(rng, n), strict=True):
        which = label, rng.integers(len(fonts))
        if which not in drawn:
            page = page_of(fonts[which[1]], LETTERS[label])
            left, top, right, bottom = page.getbbox()
            shift = 1, 0, (left + right) / 2 - 56, 0, 1, (top + bottom) / 2 - 56
            drawn[which] = page.transform(page.size, Image.Transform.AFFINE, shift)
        turned = np.array([[math.cos(turn), -math.sin(turn)], [math.sin(turn), math.cos(turn)]])
        A = turned @ np.array([[1.0, slant], [0.0, rng.uniform(0.8, 1.2)]]) / size
        a, b = A @ [-56, -56] + 56 + rng.normal(0, 3, 2)
        given = *A[0], a, *A[1], b
        page = drawn[which].transform(
            (112, 112), Image.Transform.AFFINE, given, Image.Resampling.BILINEAR
        )
        width = int(rng.choice([1, 3, 5]))
        if width > 1:  # with 1, which changes nothing, some releases of Pillow divide by zero
            page = page.filter(ImageFilter.MaxFilter(width))
        image[:] = np.asarray(page.resize((28, 28), Image.Resampling.BOX)) / 255
    return middle(out), y


# ------------------------------------------------------------------------------- networks
def device():
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


@cache
def chosen(start):
    """The tuned constants of a start."""
    with (RESULTS / TUNING).open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["method"] == start]
    best = max(rows, key=lambda row: float(row["mean-reg"]))
    return {name: float(best[name]) for name in TUNED}


def cnn(side=8, classes=10, weights=None, wide=False):
    """Convolutions, a hidden layer and one of scores, which is the last."""
    import torch

    nn = torch.nn
    if wide:
        layers = [
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.ReLU(),
        ]
        length, hidden = 64 * (side // 4) ** 2, 128
    else:
        small = side <= 8
        first, second, hidden = (8, 16, 32) if small else (16, 32, 128)
        layers = [
            nn.Conv2d(1, first, 3, padding=1, stride=1 if small else 2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(first, second, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
        ]
        length = second * (side // (4 if small else 8)) ** 2
    net = nn.Sequential(
        nn.Unflatten(1, (1, side, side)),
        *layers,
        nn.Flatten(),
        nn.Linear(length, hidden),
        nn.ReLU(),
        nn.Linear(hidden, classes),
    )
    if weights is not None:
        net.load_state_dict(weights)
    return net


class Images:
    """Images of writers, and networks that were trained on what belongs to nobody.

    Parameters
    ----------
    read : callable
        ``read(seed, quick)``, as `made_writers`.
    fonts : str, default=None
        See `typefaces`.
    """

    def __init__(self, read, fonts=None):
        self.read, self.fonts, self._trained = read, fonts, {}

    def __call__(self, seed, quick):
        return self.read(seed, quick)

    def public(self, side, classes, quick=False, wide=False):
        """Weights of a public CNN, and how long its features are."""
        given = side, classes, quick, wide
        if given not in self._trained:
            self._trained[given] = self._train(*given)
        return self._trained[given]

    def _train(self, side, classes, quick, wide):
        import torch

        rng = np.random.default_rng(7)
        if side <= 8:
            images, y = digits()
            pick = np.random.default_rng(0).permutation(len(y))[:400]
            some = rng.choice(pick, (100 if quick else 1200, 64))
            batches = [
                (styled(images[one], style), y[one])
                for one, style in zip(some, styles(rng, len(some)), strict=True)
            ]
        else:
            X, y = glyphs(2_000 if quick else 100_000 if self.fonts else 40_000, self.fonts)
            steps = 12_000 if self.fonts and not wide else 4000
            some = rng.choice(len(y), (100 if quick else steps, 128))
            batches = ((X[one], y[one]) for one in some)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            net = cnn(side, classes, wide=wide)
            adam = torch.optim.Adam(net.parameters(), 2e-3 if wide else 3e-3)
            slower = torch.optim.lr_scheduler.CosineAnnealingLR(adam, len(some))
            for rows, labels in batches:
                scores = net(torch.from_numpy(rows).float())
                loss = torch.nn.functional.cross_entropy(scores, torch.from_numpy(labels))
                adam.zero_grad()
                loss.backward()
                adam.step()
                slower.step()
            with torch.no_grad():
                length = net[:-1](torch.from_numpy(rows).float()).norm(dim=1).mean()
        return net.state_dict(), float(length)


# ---------------------------------------------------------------------------------- scores
def scored(est, train, test):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        warnings.simplefilter("ignore", UserWarning)
        return est.fit(train[0], train[1], task=train[2]).score(test[0], test[1], task=test[2])


def common(epsilon, train, classes, seed):
    m = int(train[2].max()) + 1
    return {
        "epsilon": epsilon,
        "delta": 1 / m,
        "adjacency": "zero-out",
        "random_state": seed,
        "tasks": range(m),
        "classes": range(classes),
    }


def network(read, start, epsilon, train, side, classes, seed, quick, **options):
    """The estimator of a CNN; `start`: "scratch" or "public start"."""
    weights = None if start == "scratch" else read.public(side, classes, quick)[0]
    given = {"n_rounds": 2 if quick else 10, "device": device(), **options}
    if not {*TUNED} <= {*options}:
        given = {**chosen(start), **given}
    return TorchMeanRegClassifier(
        cnn,
        **common(epsilon, train, classes, seed),
        module__side=side,
        module__classes=classes,
        module__weights=weights,
        **given,
    )


def of_network(read, start, epsilon, seed, quick):
    """Accuracy of a CNN, released and personal, and of going alone from its start."""
    (train, test), side, classes = read(seed, quick)
    est = network(read, start, epsilon, train, side, classes, seed, quick, personalization="none")
    found = {"released": scored(est, train, test)}
    billboard = est.billboard_
    for variant, folds in [*((variant, 3) for variant in PERSONAL[1:]), ("mean-reg", None)]:
        billboard.personalization = est.personalization = variant
        billboard.personal_folds = est.personal_folds = folds
        est.personalize(train[0], train[1], task=train[2])
        name = variant if folds else f"{variant}, all of the way"
        found[name] = est.score(test[0], test[1], task=test[2])
    return found


def as_it_is(read, wide, seed, quick):
    """A public network, which saw no writer."""
    import torch

    (_, (X, y, _)), side, classes = read(seed, quick)
    net = cnn(side, classes, read.public(side, classes, quick, wide)[0], wide)
    with torch.no_grad():
        scores = net(torch.tensor(X).float())
    return {"none": float(np.mean(scores.argmax(1).numpy() == y))}


def alone(read, start, seed, quick):
    """A network of every writer, from the start: no way is made in the rounds."""
    (train, test), side, classes = read(seed, quick)
    est = network(
        read,
        start,
        None,
        train,
        side,
        classes,
        seed,
        quick,
        n_rounds=1,
        server_learning_rate=1e-12,
        personalization="finetune",
    )
    return {"finetune": scored(est, train, test)}


def linear(read, kind, epsilon, seed, quick):
    """Accuracy of a linear model at a budget; None: of every writer alone."""
    (train, test), side, classes = read(seed, quick)
    size, init = np.sqrt(side * side / 4), None  # public: rows of length about 1
    if kind != "pixels":
        wide = side > 8
        weights, size = read.public(side, classes, quick, wide)
        last = max(int(name.split(".")[0]) for name in weights)
        frozen = TorchFeatures(partial(cnn, side, classes, weights, wide), output=str(last - 1))
        train, test = ((frozen.fit_transform(X), y, t) for X, y, t in (train, test))
    if kind == "public head":
        coef, intercept = (weights[f"{last}.{name}"].numpy() for name in ("weight", "bias"))
        init = {"coef": size * coef, "intercept": intercept, "classes": range(classes)}
    train, test = ((X / size, y, t) for X, y, t in (train, test))
    if epsilon is None:
        est = LocalOnlyClassifier(init=init, classes=range(classes))
    else:
        est = PrivateMeanRegMTLClassifier(init=init, **common(epsilon, train, classes, seed))
    return {"mean-reg": scored(est, train, test)}


def measure(read, data, quick, repeats):
    """Cells of the table, as `computed` takes them."""
    seeds = range(repeats)
    (train, _), side, classes = read(0, quick)
    m = int(train[2].max()) + 1
    size = sum(p.numel() for p in cnn(side, classes).parameters())

    def cell(method, epsilon, function, *given):
        noise = ""
        if epsilon is not None and method.startswith("cnn"):
            noise = f"{math.sqrt(size / (2 if quick else 10)) / (m * gdp_mu(epsilon, 1 / m)):.3g}"

        def rows(found):
            for variant in found[0]:
                scores = [one[variant] for one in found]
                yield {
                    "data": data,
                    "method": method,
                    "personalization": variant,
                    "epsilon": "" if epsilon is None else epsilon,
                    "noise over way": noise,
                    "mean": f"{np.mean(scores):.4f}",
                    "sd": f"{np.std(scores):.4f}",
                    "repeats": len(scores),
                }

        return [(function, read, *given, seed, quick) for seed in seeds], rows

    networks = {"public network": False} | ({"public network, wide": True} if side > 8 else {})
    for name, wide in networks.items():
        read.public(side, classes, quick, wide)  # once for all processes
        yield cell(name, None, as_it_is, wide)
    for start in GRID:
        yield cell(f"alone, {start}", None, alone, start)
    for kind in LINEAR:
        yield cell(f"alone, linear, {kind}", None, linear, kind, None)
    for epsilon in EPSILONS:
        for kind in LINEAR if epsilon is not None else ():
            yield cell(f"linear, {kind}", epsilon, linear, kind, epsilon)
        for start in GRID:
            yield cell(f"cnn, {start}", epsilon, of_network, start, epsilon)


def tune(read, quick, jobs):
    """Accuracy over the grid of constants, on writers of seeds 100 and 101."""
    fields = ("released", "mean-reg")

    def cell(start, epsilon, values):
        options = dict(zip(TUNED, values, strict=True))

        def rows(found):
            means = {name: f"{np.mean([one[name] for one in found]):.4f}" for name in fields}
            yield {
                "method": start,
                "epsilon": "" if epsilon is None else epsilon,
                **options,
                **means,
            }

        return [(_tried, read, start, epsilon, options, seed, quick) for seed in (100, 101)], rows

    cells = [
        cell(start, 2.0, values)
        for start, blocks in GRID.items()
        for block in blocks
        for values in itertools.product(*block)
    ]
    yield from computed(cells[::6] if quick else cells, jobs)


def _tried(read, start, epsilon, options, seed, quick):
    (train, test), side, classes = read(seed, quick)
    est = network(
        read, start, epsilon, train, side, classes, seed, quick, personalization="none", **options
    )
    found = {"released": scored(est, train, test)}
    est.billboard_.personalization = est.personalization = "mean-reg"
    est.billboard_.personal_folds = est.personal_folds = None  # all of the way
    est.personalize(train[0], train[1], task=train[2])
    return {**found, "mean-reg": est.score(test[0], test[1], task=test[2])}


def main(arguments=None):
    parser = script(
        "networks_images", __doc__, "30 writers, 2 rounds", 3, "networks_images.csv", jobs=True
    )
    parser.add_argument("--leaf", help="folder of LEAF's FEMNIST")
    parser.add_argument("--fonts", help="folder of TrueType and OpenType fonts")
    parser.add_argument("--tune", action="store_true", help="the grid of constants")
    options = parser.parse_args(arguments)
    read = Images(
        partial(leaf_writers, options.leaf) if options.leaf else made_writers, options.fonts
    )
    if options.tune:
        fields = ("method", "epsilon", *TUNED, "released", "mean-reg")
        return write_rows(tune(read, options.quick, options.jobs), fields, options.output)
    data = "FEMNIST" if options.leaf else "made writers"
    repeats = options.repeats or (1 if options.quick else 3)
    rows = computed(measure(read, data, options.quick, repeats), options.jobs)
    done = write_rows(rows, FIELDS, options.output)
    draw(done).savefig(options.output.with_suffix(".png"), dpi=110)
    return done


if __name__ == "__main__":
    from . import networks_images  # by whose name other processes find what is cached

    networks_images.main()
