"""Download of one file, with a checksum and a cache."""

import hashlib
import os
import shutil
import tempfile
from pathlib import Path


def fetched(url, name, sha256, data_home, download_if_missing, otherwise):
    """Path of the file `name` in scikit-learn's data home, downloaded where it is missing.

    It appears only once its checksum is right. OSError, which says what to do `otherwise`.
    """
    # With all loaders and all of HTTP, for which an import of the package would wait.
    import urllib.error
    import urllib.request

    from sklearn.datasets import get_data_home

    kept = Path(get_data_home(data_home)) / name
    if kept.is_file():
        return kept
    if not download_if_missing:
        raise OSError(
            f"{name} is not in {kept.parent} and download_if_missing is False; {otherwise}."
        )
    handle, part = tempfile.mkstemp(prefix=name, suffix=".part", dir=kept.parent)
    try:
        with os.fdopen(handle, "wb") as out, urllib.request.urlopen(url, timeout=60) as source:
            shutil.copyfileobj(source, out)
        got = hashlib.sha256(Path(part).read_bytes()).hexdigest()
        if got != sha256:
            raise OSError(
                f"{url} has SHA-256 {got}, expected {sha256}: the file was changed or cut off. "
                f"Try again; {otherwise}."
            )
        os.replace(part, kept)
    except urllib.error.URLError as error:
        raise OSError(f"{url} could not be downloaded ({error.reason}); {otherwise}.") from error
    finally:
        Path(part).unlink(missing_ok=True)
    return kept
