"""
A public start
==============

Sixty people have thirty images of digits each, and each person wants a model. Their rows are
private, but the shapes of digits are not: a model fitted to glyphs of fonts is a good start, and
private fits learn only the differences from it. ``init=`` costs no privacy.
"""

# %%
# Public rows: digits in the fonts that come with matplotlib, slightly shifted, rotated and
# thickened, at the size of the private images.
import warnings
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

rng = np.random.default_rng(0)


def glyph(digit, path):
    """An image (64,) of 8 by 8 grey values from 0 to 1."""
    font = ImageFont.truetype(str(path), 44)
    page = Image.new("L", (96, 96))
    ImageDraw.Draw(page).text((48, 48), str(digit), 255, font=font, anchor="mm")
    page = page.rotate(rng.normal(0, 8), resample=Image.BILINEAR)
    if rng.random() < 0.7:
        page = page.filter(ImageFilter.MaxFilter(int(rng.choice([3, 5]))))
    left, top, right, bottom = page.getbbox()
    wide = max((bottom - top) - (right - left), 0) // 2 + rng.integers(-3, 4)
    page = page.crop((left - wide, top, right + wide, bottom)).resize((8, 8), Image.BOX)
    return np.asarray(page).ravel() / 255.0


folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
fonts = [
    path
    for kind in ("DejaVuSans[-.M]*", "DejaVuSerif[-.]*", "STIXGeneral[.BI]*")
    for path in sorted(folder.glob(kind))
]
public = np.array([[glyph(k, path) for k in range(10)] for path in fonts for _ in range(15)])
X_public, y_public = public.reshape(-1, 64), np.tile(np.arange(10), len(public))
head = LogisticRegression(C=0.1, max_iter=500).fit(X_public, y_public)

# %%
# Private rows: people come one after the other in these images. A third of the images of each task
# are for training.
X, y = load_digits(return_X_y=True)
X = X / 16.0
task = np.arange(len(y)) // 30
train = rng.random(len(y)) < 1 / 3
fig, axes = plt.subplots(2, 8, figsize=(6, 1.7))
for ax, image in zip(axes.flat, [*X_public[:80:10], *X[:8]], strict=True):
    ax.imshow(image.reshape(8, 8), cmap="Greys")
    ax.set(xticks=[], yticks=[])
for ax in axes[1]:
    ax.set_xlabel("8 x 8")
fig.suptitle("Glyphs (above) and private images")

# %%
# Fits over the budget, with and without the start. Fits with the same ``random_state`` share their
# noise, which is for pictures only.
from skpmtl import PrivateMeanRegMTLClassifier
from skpmtl.reproduction import LocalOnlyClassifier

warnings.filterwarnings("ignore", message="The noise of this fit is reproducible")
public_lists = {"tasks": range(60), "classes": range(10)}


def accuracy(est):
    est.set_params(**public_lists).fit(X[train], y[train], task=task[train])
    return est.score(X[~train], y[~train], task=task[~train])


budgets = [0.3, 1.0, 3.0, 10.0]
curves = {
    name: [
        accuracy(PrivateMeanRegMTLClassifier(epsilon=eps, init=init, random_state=0))
        for eps in budgets
    ]
    for name, init in (("from 0", None), ("from the public start", head))
}
alone = accuracy(LocalOnlyClassifier())
tuned = accuracy(LocalOnlyClassifier(init=head))

fig, ax = plt.subplots(figsize=(6, 3.5))
for name, scores in curves.items():
    ax.semilogx(budgets, scores, marker="o", label=f"private fit {name}")
ax.axhline(head.score(X[~train], y[~train]), color="grey", ls=":", label="public model, as it is")
ax.axhline(alone, color="C0", ls="--", label="every task alone")
ax.axhline(tuned, color="C1", ls="--", label="every task from the public start")
ax.set(xlabel="epsilon", ylabel="accuracy on held-out images")
ax.legend(fontsize=8)
plt.show()

# %%
# The report states the public initial model.
est = PrivateMeanRegMTLClassifier(epsilon=3.0, init=head, random_state=0)
print("accuracy", round(accuracy(est), 3))
print("init:", est.privacy_.public_inputs["init"])
