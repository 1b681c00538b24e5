"""Measured cycles of layers, read from a CSV file."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from nmpsim.bundle import Bundle, read_bundle
from nmpsim.bundle.metadata import Layer, list_chains
from nmpsim.diagnostics import Place, UserError, fail, locate_errors
from nmpsim.input_files import read_text
from nmpsim.lir.layers import find_layer
from nmpsim.records import frozen

COLUMNS = ("program", "layer", "cycles")
MAX_ROWS = 10_000
"""Maximum number of rows of a file."""
MAX_PROGRAMS = 100
"""Maximum number of programs of a file."""


@frozen
class LayerKey:
    """Key of a layer: index of its program, and its index in the program."""

    program: int
    layer: int


@frozen(eq=False)
class Measurements:
    """Measured cycles of device layers, and the programs of these layers."""

    paths: Sequence[str]
    """Paths of the bundles as in the file."""
    programs: Sequence[Bundle]
    cycles: Mapping[LayerKey, float]
    """Measured cycles; the mean if a layer was measured several times."""

    def list_layers(self) -> list[LayerKey]:
        """Return the keys of all device layers of the programs, one for each chain."""
        return [
            LayerKey(number, layer.index)
            for number, program in enumerate(self.programs)
            for layer in program.metadata.layers
            if layer.placement == "device" and find_chain_start(program, layer) is layer
        ]

    def get_layer_name(self, key: LayerKey) -> str:
        """Return the display name of a layer."""
        return self.programs[key.program].metadata.layers[key.layer].display_name


def read_measurements(path: Path) -> Measurements:
    """Read a CSV file of measured cycles, and the bundles that the file names.

    The file has the columns ``program``, ``layer`` and ``cycles``. Paths of bundles are relative to
    the file. A row without layer and cycles only adds a program.

    Raises
    ------
    UserError
        FIT001 for an invalid file, LAYER001 for an unknown layer, and codes of FILE and BUN.
    """
    rows = _read_rows(path)
    paths = list(dict.fromkeys(row["program"] for _, row in rows))
    if len(paths) > MAX_PROGRAMS:
        found, expected = f"{len(paths)} programs", f"at most {MAX_PROGRAMS}"
        raise _invalid(path, None, "the file has too many programs", found, expected)
    programs = [read_bundle(path.parent / name) for name in paths]
    measured: dict[LayerKey, list[float]] = {}
    for line, row in rows:
        if not row["layer"] and not row["cycles"]:
            continue
        number = paths.index(row["program"])
        with locate_errors(path):
            layer = find_layer(programs[number].metadata.layers, row["layer"])
        if layer.placement != "device":
            text, expected = f"{row['layer']}, on the host", "a layer on the device"
            raise _invalid(path, line, "the layer runs on the host", text, expected)
        first = find_chain_start(programs[number], layer)
        if first is not layer:
            text = f"{row['layer']}, in the chain of {first.display_name}"
            expected = f"the cycles of the complete chain, with the layer {first.display_name}"
            raise _invalid(path, line, "the layer is a part of a chain", text, expected)
        key = LayerKey(number, layer.index)
        measured.setdefault(key, []).append(_parse_cycles(path, line, row["cycles"]))
    if not measured:
        expected = "at least one row with a layer and its cycles"
        raise _invalid(path, None, "the file has no measured cycles", None, expected)
    cycles = {key: sum(each) / len(each) for key, each in measured.items()}
    return Measurements(paths, programs, cycles)


def find_chain_start(program: Bundle, layer: Layer) -> Layer:
    """Return the first layer of a layer's chain, or the layer itself outside of chains."""
    chains = list_chains(program.metadata.layers)
    return next((chain[0] for chain in chains if layer in chain), layer)


def _read_rows(path: Path) -> list[tuple[int, dict[str, str]]]:
    """Return the rows with their lines."""
    reader = csv.DictReader(read_text(path, "file of measured cycles", code="FIT001").splitlines())
    try:
        names = tuple(name.strip() for name in reader.fieldnames or ())
        if names != COLUMNS:
            text, expected = ", ".join(names)[:80] or "no columns", ", ".join(COLUMNS)
            raise _invalid(path, 1, "the columns are wrong", text, expected)
        rows = []
        for row in reader:
            values = {name: (row[key] or "").strip() for name, key in zip(names, row, strict=False)}
            if None in row or not values["program"]:
                text = "too many fields" if None in row else "no program"
                raise _invalid(path, reader.line_num, "the row is invalid", text, "3 fields")
            rows.append((reader.line_num, values))
            if len(rows) > MAX_ROWS:
                text, expected = f"over {MAX_ROWS:,} rows", f"at most {MAX_ROWS:,} rows"
                raise _invalid(path, None, "the file has too many rows", text, expected)
    except csv.Error as error:
        expected = "comma-separated values"
        raise _invalid(path, None, "the file is not CSV", str(error), expected) from error
    return rows


def _parse_cycles(path: Path, line: int, text: str) -> float:
    try:
        cycles = float(text)
    except ValueError:
        cycles = math.nan
    if not 0 < cycles < 1e15:
        expected = "a number of cycles above 0"
        raise _invalid(path, line, "the cycles of a layer are invalid", repr(text)[:80], expected)
    return cycles


def _invalid(
    path: Path, line: int | None, message: str, found: str | None, expected: str
) -> UserError:
    hint = "Write rows such as net.bin,conv1,12345 below the columns program,layer,cycles."
    place = Place(str(path), line)
    return fail("FIT001", message, place=place, found=found, expected=expected, hint=hint)
