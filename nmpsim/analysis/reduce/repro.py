"""Writing of a reduced program as a folder that checks itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal, TypedDict

from nmpsim.analysis.reduce.failures import DifferenceFailure, SaturationFailure
from nmpsim.analysis.reduce.search import Reduction
from nmpsim.arrays import Arrays
from nmpsim.atomic import make_write_error, write_file, write_npz
from nmpsim.core.run import make_layer_key
from nmpsim.diagnostics import fail
from nmpsim.frontends.imported_model import make_imported_model
from nmpsim.quantization.files import write_program
from nmpsim.report.fields import Source
from nmpsim.report.json import to_json

BUNDLE, INPUTS, EXPECTED = "repro.bin", "inputs.npz", "expected.npz"
SUITE, FACTS, ASSEMBLY, LIR = "suite.toml", "repro.json", "repro.s", "repro.lir"


class ReproDocument(TypedDict):
    """JSON document ``repro.json`` of `nmpsim reduce`."""

    schema: Literal["nmpsim-repro-2"]
    failure: Annotated[str, Source("failure.text")]
    part: Annotated[str, Source("description"), "which part of the program, on how many cores"]
    layers: Annotated[
        list[str],
        Source(lambda found: [layer.name for layer in found.bundle.metadata.layers]),
    ]
    trap: Annotated[str | None, Source("report.trap.message"), "its message"]
    engine: Annotated[str, Source("report.engine")]
    tiling: Annotated[str | None, "how its layers were tiled, if it was compiled again"]
    parts_tried: Annotated[int, Source("attempts")]


def write_repro(folder: Path, reduction: Reduction) -> tuple[str, ...]:
    """Write a reduced program to a new folder as a check suite; return the file names.

    The suite fails as long as the program fails.

    Parameters
    ----------
    folder
        A new or empty folder.
    reduction
        The reduced program.

    Returns
    -------
    tuple of str
        Names of the files in the folder.

    Raises
    ------
    UserError
        FILE002 if the folder cannot be written or is not empty.
    """
    _make(folder)
    program = reduction.program
    write_file(folder / BUNDLE, program.image)
    write_npz(folder / INPUTS, dict(program.inputs))
    expected = _expected(reduction)
    if expected:
        write_npz(folder / EXPECTED, expected)
    if program.module is not None:
        write_program(make_imported_model(program.module), folder / LIR)
    if program.assembly is not None:
        write_file(folder / ASSEMBLY, program.assembly)
    write_file(folder / SUITE, _suite(reduction))
    write_file(folder / FACTS, json.dumps(to_json(reduction, ReproDocument), indent=2) + "\n")
    return tuple(sorted(path.name for path in folder.iterdir()))


def _make(folder: Path) -> None:
    try:
        folder.mkdir(exist_ok=True)
        is_empty = not any(folder.iterdir())
    except OSError as error:
        raise make_write_error(
            folder, error.strerror or str(error), "Pass a new folder."
        ) from error
    if not is_empty:
        message = "the folder for the result is not empty"
        found = f"{len(list(folder.iterdir()))} entries"
        raise fail("FILE002", message, place=folder, found=found, hint="Pass a new folder.")


def _expected(found: Reduction) -> Arrays:
    failure = found.failure
    if not isinstance(failure, DifferenceFailure):
        return {}
    return {
        make_layer_key(layer): failure.expected.reshape(layer.output.shape)
        for layer in found.bundle.metadata.layers
        if layer.name == failure.layer
    }


def _suite(found: Reduction) -> str:
    lines = [
        f"# {found.failure.text}",
        "[[case]]",
        f'bundle = "{BUNDLE}"',
        *([f'input = "{INPUTS}"'] if found.program.inputs else []),
    ]
    if isinstance(found.failure, DifferenceFailure):
        lines.append(f'expect.layers = "{EXPECTED}"')
    elif isinstance(found.failure, SaturationFailure):
        lines.append('budget.saturation = "none"')
    else:  # a run that reaches the end has passed
        lines.append(f"budget.cycles = {found.report.device['limits_cycles']}")
    return "\n".join(lines) + "\n"
