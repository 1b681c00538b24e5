"""Programs that tests share: parsed once per worker, compiled and run once per session.

``conftest.py`` names the session's folder in the environment; workers of pytest-xdist inherit it.
"""

from __future__ import annotations

import hashlib
import os
import pickle
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from tiers import FOLDER

import nmpsim
from nmpsim.atomic import write_file
from nmpsim.bundle import Bundle, parse_bundle
from nmpsim.lir.constants import attach_constants, find_tensors_file
from nmpsim.lir.nodes import Module
from nmpsim.lir.parser import parse_file
from nmpsim.lir.verify import verify
from nmpsim.report.data import RunReport

SUFFIX = ".lir.txt"


@cache
def load_module(text: Path) -> Module:
    """Return the verified module of a LIR text with its constants."""
    module, warnings = attach_constants(
        parse_file(text), get_weights_path(text), find_tensors_file(text)
    )
    assert warnings == ()
    verify(module)
    return module


def get_weights_path(text: Path) -> Path:
    """Return the path of a LIR text's constants."""
    return text.with_name(text.name.removesuffix(SUFFIX) + ".npz")


def compiled(text: Path, **options: Any) -> Bundle:
    """Return the bundle of a LIR text; ``options`` are those of ``nmpsim.compile``."""
    return parse_bundle(compile_image(text, **options))


def compile_image(text: Path, **options: Any) -> bytes:
    """Return a bundle's bytes, compiled by whichever worker asks for it first."""
    return compile_file(text, **options).read_bytes()


def compile_file(text: Path, **options: Any) -> Path:
    """Return the session's file of a bundle, in which DRAM holds every layer's output."""
    options = {"tiling": "layer"} | options

    def compile_text() -> bytes:
        program = nmpsim.compile(text, get_weights_path(text), **options)
        assert program.warnings == ()
        return program.image

    given = {name: value for name, value in options.items() if value not in (None, {})}
    return _shared_file((str(text), sorted(given.items())), compile_text)


def run_program(text: Path, cores: int, **options: Any) -> RunReport:
    """Return the report of a recorded program on its recorded inputs, with all layers' outputs.

    The program is compiled for the default device with another number of cores, loaded from a
    file, and run on the compiled engine by whichever worker asks first.
    """
    config = attrs.evolve(nmpsim.default_device(), cores_count=cores)

    def run() -> bytes:
        bundle = nmpsim.load(compile_file(text, device=config, **options))
        report = make_device(cores).run(bundle, make_inputs(text), save_layers=True)
        return pickle.dumps(report)

    path = _shared_file(("report", str(text), cores, sorted(options.items())), run)
    report: RunReport = pickle.loads(path.read_bytes())
    return report


@cache
def make_device(cores: int) -> nmpsim.Device:
    """Return the default device with another number of cores."""
    return nmpsim.Device(attrs.evolve(nmpsim.default_device(), cores_count=cores))


def make_inputs(text: Path) -> dict[str, Any]:
    """Return the recorded inputs of a program by name."""
    with np.load(get_weights_path(text)) as archive:
        return {
            key.removeprefix("input/"): archive[key]
            for key in archive.files
            if key.startswith("input/")
        }


def _shared_file(key: object, make: Callable[[], bytes]) -> Path:
    """Return a file of the session's folder, written by whichever worker asks for it first."""
    path = Path(os.environ[FOLDER]) / hashlib.sha256(repr(key).encode()).hexdigest()
    if not path.exists():
        contents = make()
        write_file(path, lambda file: file.write(contents))
    return path
