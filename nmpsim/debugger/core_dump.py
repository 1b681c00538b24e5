"""Core files: a run saved so that it can be opened where it stopped.

An ``.npz`` file without pickled objects: ``bundle`` (uint8: the bundle's file), ``input/NAME``
(values of each input), ``about`` (uint8: JSON with schema, device settings, engine, and position,
or null for the end of the run), ``edits`` (uint8: JSON, the changes). Runs are deterministic, so
opening a core file repeats the run, and every earlier position can be reached.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypedDict

import attrs
import numpy as np

from nmpsim.arrays import Array, Arrays
from nmpsim.atomic import write_npz
from nmpsim.bundle import Bundle, parse_bundle
from nmpsim.bundle.limits import JSON_BYTES
from nmpsim.bundle.schema import make_strict_converter
from nmpsim.config import DeviceConfig, make_device_config
from nmpsim.core.engine_selection import ENGINES
from nmpsim.debugger.edits import Edit, Piece
from nmpsim.debugger.reference import ArrayReader
from nmpsim.diagnostics import UserError, fail, list_alternatives

if TYPE_CHECKING:
    from cattrs import Converter

SCHEMA: Final = "nmpsim-core-2"
MAX_EDITS_BYTES = JSON_BYTES.high


class AboutDocument(TypedDict):
    """JSON document of a core file: device settings, engine and position."""

    schema: Literal["nmpsim-core-2"]
    device: Annotated[dict[str, Any], "its settings, by name"]
    engine: str
    position: Annotated[int | None, "null: as far as the run comes"]


@attrs.frozen(eq=False)
class CoreDump:
    """Core dump of a run: bundle, inputs, device, engine, position and edits."""

    image: bytes
    """Contents of the bundle's file."""
    inputs: Arrays
    config: DeviceConfig
    engine: str
    position: int | None
    """Position of the run; None for its trap or its end."""
    edits: tuple[Edit, ...] = ()
    """Changes to the program and to DRAM."""

    def load_bundle(self, path: str) -> Bundle:
        """Load the bundle of the core file; raise UserError as :func:`nmpsim.load` does."""
        return parse_bundle(self.image, path)


def write_core_file(path: Path, core: CoreDump) -> None:
    """Write a core file; raise UserError (FILE002) if it cannot be written."""
    about: AboutDocument = {
        "schema": SCHEMA,
        "device": dict(core.config.settings()),
        "engine": core.engine,
        "position": core.position,
    }
    arrays = {
        "about": np.frombuffer(json.dumps(about).encode(), np.uint8),
        "bundle": np.frombuffer(core.image, np.uint8),
        "edits": np.frombuffer(json.dumps(_converter().unstructure(core.edits)).encode(), np.uint8),
        **{f"input/{name}": values for name, values in core.inputs.items()},
    }
    write_npz(path, arrays)


def read_core_file(path: Path, arrays: ArrayReader) -> CoreDump:
    """Read a core file; raise UserError (DEBUG003) if the file is not a core file.

    Raises
    ------
    UserError
        DEBUG003 if the file is no core file; whatever reading arrays and device settings raises.
    """
    keys = set(arrays.keys)
    if not {"about", "bundle", "edits"} <= keys:
        raise _no_core(path, f"the arrays {', '.join(sorted(keys))}" if keys else "no arrays")
    about: AboutDocument = _read_document(path, arrays.read("about"), AboutDocument)
    edits: tuple[Edit, ...] = _read_document(path, arrays.read("edits"), tuple[Edit, ...])
    position = about["position"]
    if about["engine"] not in ENGINES:
        raise _no_core(path, f"engine {about['engine']!r}", list_alternatives(ENGINES))
    if position is not None and position < 0:
        raise _no_core(path, f"position {position}", "a position of 0 or more")
    image = _get_bytes(path, arrays.read("bundle"))
    inputs = {
        key.removeprefix("input/"): arrays.read(key)
        for key in sorted(keys)
        if key.startswith("input/")
    }
    config = make_device_config(about["device"])
    return CoreDump(image, inputs, config, about["engine"], position, edits)


def _read_document(path: Path, data: Array, kind: Any) -> Any:
    """Return the record of a class or type whose JSON is in an array of bytes."""
    from cattrs import BaseValidationError, transform_error

    try:
        document = json.loads(_get_bytes(path, data, MAX_EDITS_BYTES))
        return _converter().structure(document, kind)
    except BaseValidationError as error:
        expected = "valid fields in the arrays about and edits"
        raise _no_core(path, "; ".join(transform_error(error)), expected) from error
    except (ValueError, TypeError, AttributeError, RecursionError) as error:  # no JSON object
        raise _no_core(path, str(error), "JSON in the arrays about and edits") from error


@cache
def _converter() -> Converter:
    from cattrs.gen import make_dict_unstructure_fn, override

    converter = make_strict_converter()

    def structure_piece(value: Any, _: object) -> Piece:
        address, now = value
        return converter.structure(address, int), bytes.fromhex(now)

    converter.register_structure_hook_func(lambda kind: kind == Piece, structure_piece)
    converter.register_unstructure_hook(bytes, bytes.hex)
    optional = override(omit_if_default=True)
    converter.register_unstructure_hook(
        Edit, make_dict_unstructure_fn(Edit, converter, core=optional, registers=optional)
    )
    return converter


def _get_bytes(path: Path, data: Array, most: int | None = None) -> bytes:
    """Return the contents of an array of bytes."""
    if data.dtype != np.uint8 or data.ndim != 1:
        found = f"an array of {data.dtype} with {data.ndim} dimensions"
        raise _no_core(path, found, "arrays of uint8 with 1 dimension")
    if most is not None and data.size > most:
        raise _no_core(path, f"an array of {data.size} bytes", f"an array of at most {most} bytes")
    return data.tobytes()


def _no_core(
    path: Path, found: str, expected: str = "the arrays about, bundle and edits"
) -> UserError:
    return fail(
        "DEBUG003",
        "the file is not a valid core file",
        place=path,
        found=found[:120],
        expected=expected,
        hint="Use a file written by `nmpsim run --core-on-trap FILE` or `core FILE`.",
    )
