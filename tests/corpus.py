"""Recorded programs that tests share: each is parsed once per worker and compiled once per session.

``conftest.py`` names the session's folder in the environment; workers of pytest-xdist inherit it.
"""

from __future__ import annotations

import hashlib
import os
from functools import cache
from pathlib import Path
from typing import Any

import nmpsim
from nmpsim.atomic import write_file
from nmpsim.bundle import Bundle, bundle_from_bytes
from nmpsim.lir.constants import attach_constants, find_tensors_file
from nmpsim.lir.nodes import Module
from nmpsim.lir.parser import parse_file
from nmpsim.lir.verify import verify

FOLDER = "NMPSIM_TEST_CORPUS"
"""Environment variable with the session's folder of compiled programs."""
SUFFIX = ".lir.txt"


@cache
def module_of(text: Path) -> Module:
    """Return the verified module of a LIR text with its constants."""
    module, warnings = attach_constants(parse_file(text), weights_of(text), find_tensors_file(text))
    assert warnings == ()
    verify(module)
    return module


def weights_of(text: Path) -> Path:
    """Return the path of a LIR text's constants."""
    return text.with_name(text.name.removesuffix(SUFFIX) + ".npz")


def compiled(text: Path, **options: Any) -> Bundle:
    """Return the bundle of a LIR text; ``options`` are those of ``nmpsim.compile``."""
    return bundle_from_bytes(image_of(text, **options))


def image_of(text: Path, **options: Any) -> bytes:
    """Return a bundle's bytes, compiled by whichever worker asks for it first."""
    key = repr((str(text), sorted(options.items())))
    path = Path(os.environ[FOLDER]) / hashlib.sha256(key.encode()).hexdigest()
    if not path.exists():
        program = nmpsim.compile(text, weights_of(text), **options)
        assert program.warnings == ()
        write_file(path, lambda file: file.write(program.image))
    return path.read_bytes()
