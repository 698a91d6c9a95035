"""Syntax trees of the package, which several tests look at: each file is read once."""

import ast
from functools import cache


@cache
def tree(path):
    return ast.parse(path.read_text(encoding="utf-8"))
