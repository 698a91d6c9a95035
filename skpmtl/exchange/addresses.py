"""Addresses of object stores, such as ``s3://bucket/folder``, which fsspec opens."""

import re

__all__ = ["opened", "reading"]


def opened(where):
    """-> file system of fsspec (None for paths of this machine), path in it"""
    if "://" not in where:
        if re.match("[A-Za-z][A-Za-z0-9+.-]+:/", where):
            raise ValueError(
                f"{where!r} is an address that a Path has changed: give it as text, such as "
                '"s3://bucket/folder".'
            )
        return None, where
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise ImportError(
            f"{where!r} is opened by fsspec: pip install skpmtl[remote], and what its scheme needs "
            "(s3fs, gcsfs, adlfs)"
        ) from error
    return url_to_fs(where)


def reading(files, path):
    """The file at a path of `opened`, open to be read as bytes."""
    return files.open(path) if files else open(path, "rb")
