"""Core files: a run saved so that it can be opened where it stopped.

An ``.npz`` file without pickled objects: ``bundle`` (uint8: the bundle's file), ``input/NAME``
(values of each input), ``about`` (uint8: JSON with schema, device settings, engine, and position,
or null for the end of the run), ``edits`` (uint8: JSON, the changes). Runs are deterministic, so
opening a core file repeats the run, and every earlier position can be reached.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypedDict

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.atomic import write_npz
from nmpsim.bundle import Bundle, bundle_from_bytes
from nmpsim.bundle.patch import MAX_PATCH_BYTES
from nmpsim.config import DeviceConfig, from_settings
from nmpsim.core.engine_selection import ENGINES
from nmpsim.debugger.edits import Edit
from nmpsim.debugger.reference import ArrayReader
from nmpsim.diagnostics import Place, UserError, fail

SCHEMA: Final = "nmpsim-core-2"
MAX_ABOUT_BYTES = 1 << 20
MAX_EDITS_BYTES = MAX_PATCH_BYTES


class AboutDocument(TypedDict):
    """JSON document in the array ``about``."""

    schema: Literal["nmpsim-core-2"]
    device: Annotated[dict[str, Any], "its settings, by name"]
    engine: str
    position: Annotated[int | None, "null: as far as the run comes"]


@attrs.frozen(eq=False)
class CoreDump:
    """Contents of a core file."""

    image: bytes
    """Contents of the bundle's file."""
    inputs: Mapping[str, npt.NDArray[Any]]
    config: DeviceConfig
    engine: str
    position: int | None
    """Position of the run; None for its trap or its end."""
    edits: tuple[Edit, ...] = ()
    """Changes to the program and to DRAM."""

    def load_bundle(self, path: str) -> Bundle:
        """Return the program; raise UserError as :func:`nmpsim.load` does."""
        return bundle_from_bytes(self.image, path)


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
        "edits": np.frombuffer(json.dumps([_listed(one) for one in core.edits]).encode(), np.uint8),
        **{f"input/{name}": values for name, values in core.inputs.items()},
    }
    write_npz(path, arrays)


def read_core_file(path: Path, arrays: ArrayReader) -> CoreDump:
    """Read a core file.

    Raises
    ------
    UserError
        DEBUG003 if the file is no core file; whatever reading arrays and device settings raises.
    """
    keys = set(arrays.keys)
    if not {"about", "bundle", "edits"} <= keys:
        raise _no_core(path, "no arrays about, bundle and edits")
    about = _about(path, arrays.read("about"))
    edits = _document(path, arrays.read("edits"), MAX_EDITS_BYTES)
    image = arrays.read("bundle")
    if image.dtype != np.uint8 or image.ndim != 1:
        raise _no_core(path, "the bundle is no array of bytes")
    return CoreDump(
        image=image.tobytes(),
        inputs={
            key.removeprefix("input/"): arrays.read(key)
            for key in sorted(keys)
            if key.startswith("input/")
        },
        config=from_settings(about["device"]),
        engine=about["engine"],
        position=about["position"],
        edits=tuple(_edit(path, one) for one in (edits if isinstance(edits, list) else [None])),
    )


def _listed(edit: Edit) -> dict[str, Any]:
    pieces = [[address, now.hex()] for address, now in edit.pieces]
    return attrs.asdict(edit) | {"pieces": pieces, "scales": dict(edit.scales)}


def _edit(path: Path, found: Any) -> Edit:
    """Return an edit of the list after checking everything but its addresses."""
    try:
        position, pieces, what, scales = (
            found[key] for key in ("position", "pieces", "what", "scales")
        )
        edit = Edit(position, tuple((at, bytes.fromhex(now)) for at, now in pieces), what, scales)
    except (TypeError, ValueError, KeyError) as error:
        raise _no_core(path, f"an edit is impossible: {error}"[:120]) from error
    numbers = (position, *(address for address, _ in edit.pieces))
    is_right = (
        all(type(number) is int and number >= 0 for number in numbers)
        and isinstance(what, str)
        and isinstance(scales, dict)
        and all(type(one) is float and 0 < one < float("inf") for one in scales.values())
    )
    if not is_right:
        raise _no_core(path, "an edit is impossible")
    return edit


def _about(path: Path, data: npt.NDArray[Any]) -> dict[str, Any]:
    about = _document(path, data, MAX_ABOUT_BYTES)
    if not isinstance(about, dict) or about.get("schema") != SCHEMA:
        raise _no_core(path, f"no schema {SCHEMA}")
    position = about.get("position", -1)
    is_position = position is None or (
        isinstance(position, int) and not isinstance(position, bool) and position >= 0
    )
    if not is_position or about.get("engine") not in ENGINES:
        raise _no_core(path, "position or engine is impossible")
    if not isinstance(about.get("device"), dict):
        raise _no_core(path, "it has no device")
    return about


def _document(path: Path, data: npt.NDArray[Any], most: int) -> Any:
    """Return the JSON document in an array of bytes."""
    if data.dtype != np.uint8 or data.ndim != 1 or data.size > most:
        raise _no_core(path, "what it says about itself is no text")
    try:
        return json.loads(data.tobytes().decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise _no_core(path, str(error)[:120]) from error


def _no_core(path: Path, found: str) -> UserError:
    return fail(
        "DEBUG003",
        "the file is not a core file",
        place=Place(str(path)),
        found=found,
        expected="what `nmpsim run --core-on-trap FILE` or `core FILE` writes",
    )
