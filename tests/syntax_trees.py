"""Syntax trees of source files, which several tests search: each worker parses a file once."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path


@cache
def parse_file(path: Path) -> ast.Module:
    """Return the syntax tree of a Python file."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@cache
def list_nodes(path: Path) -> tuple[ast.AST, ...]:
    """Return all nodes of a Python file, in the order of :func:`ast.walk`."""
    return tuple(ast.walk(parse_file(path)))
