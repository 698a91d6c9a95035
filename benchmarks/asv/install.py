"""Put the package of a commit where the environment of asv finds it: no build, no download.

    python install.py CHECKOUT CACHE    copies the package, and what numba compiles stays with it
    python install.py CACHE             makes it the one that is imported

What it depends on is that of the environment that asv runs in, ``ASV_DEPENDENCIES``.
"""

import os
import shutil
import sys
import sysconfig
from pathlib import Path

cache = Path(sys.argv[-1])
if len(sys.argv) > 2:
    shutil.copytree(Path(sys.argv[1], "skpmtl"), cache / "skpmtl")
else:
    lines = f"{cache}\n{os.environ['ASV_DEPENDENCIES']}\n"
    Path(sysconfig.get_path("purelib"), "skpmtl.pth").write_text(lines)
