"""Values of constants and exact scales for a parsed module.

The text declares its constants; their values are in ``.npz`` files, the exact scales in a JSON
file next to them. A module is complete only with both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from nmpsim.array_files import ArrayFile
from nmpsim.arrays import Array, Arrays, Shape
from nmpsim.diagnostics import Diagnostic, Place, UserError, did_you_mean, fail, quote
from nmpsim.host_memory import PlannedAllocation, check_memory
from nmpsim.lir.constraints import format_shape
from nmpsim.lir.nodes import Module, WeightVar
from nmpsim.lir.scales import read_scales_file, resolve_exact_scales

CONSTANT_PREFIX = "const/"
FLOAT_PREFIX = "float/"
"""Prefix of arrays with the values of constants before quantization."""
LIR_SUFFIXES = (".lir.txt", ".lir", ".txt")
"""Suffixes of LIR files; files that belong to one replace the suffix."""
_MAX_HINTS = 20


def find_tensors_file(lir_path: Path) -> Path | None:
    """Return the path ``X.tensors.json`` next to ``X.lir.txt``, or None if it does not exist."""
    path = replace_lir_suffix(lir_path, ".tensors.json")
    return path if path is not None and path.is_file() else None


def replace_lir_suffix(lir_path: Path, ending: str) -> Path | None:
    """Replace a path's LIR suffix by ``ending``; return None if the path has no LIR suffix."""
    for suffix in LIR_SUFFIXES:
        if lir_path.name.endswith(suffix):
            return lir_path.with_name(lir_path.name.removesuffix(suffix) + ending)
    return None


def attach_constants(
    module: Module, weights_files: Path | Sequence[Path], tensors_file: Path | None = None
) -> tuple[Module, tuple[str, ...]]:
    """Attach exact scales and constants from ``.npz`` files to a module; return it and warnings.

    A constant is the array ``const/NAME`` or ``NAME``, from the last file that has it; what it was
    before it was quantized is ``float/NAME``, if that is there. Other arrays are ignored. Raises
    ``UserError`` for what is missing, does not fit or is damaged.
    """
    files = [weights_files] if isinstance(weights_files, Path) else weights_files
    if not files and _constants(module):
        raise _no_values(module)
    arrays: dict[str, Array] = {}
    floats: dict[str, Array] = {}
    for file in files:
        arrays |= read_constants(module, file)
        floats |= _read_floats(module, file)
    tensors = read_scales_file(tensors_file) if tensors_file is not None else None
    attached, warnings = _attached(module, arrays, tensors, tensors_file)
    return attrs.evolve(attached, floats=floats), warnings


def attach_arrays(
    module: Module, arrays: Arrays, tensors: Mapping[str, Any] | None = None
) -> tuple[Module, tuple[str, ...]]:
    """Attach exact scales and constants from named arrays to a module; return it and warnings.

    The module holds copies of the arrays, C-contiguous and read-only. Scales become Python
    floats that are exactly float32 values.
    """
    copies = {name: np.array(array, order="C") for name, array in arrays.items()}
    return _attached(module, copies, tensors, None)


def _attached(
    module: Module,
    arrays: Arrays,
    tensors: Mapping[str, Any] | None,
    tensors_file: Path | None,
) -> tuple[Module, tuple[str, ...]]:
    constants = _checked_constants(module, arrays)
    exact, warnings = resolve_exact_scales(module, tensors, tensors_file)
    return attrs.evolve(exact, constants=constants), warnings


def read_constants(module: Module, file: Path) -> dict[str, Array]:
    """Read the constants of a module from an ``.npz`` file; return the arrays by name.

    An array's dtype and shape are compared with the declaration before its data is read.
    """
    arrays: dict[str, Array] = {}
    problems: list[Diagnostic] = []
    needed = (PlannedAllocation(f"%{quote(w.name)}", w.type.nbytes) for w in _constants(module))
    check_memory("the program's constants", needed, place=Place(str(file)))
    with ArrayFile(file, "CONST001").keep_open() as npz:
        for weight in _constants(module):
            key = next(
                (k for k in (CONSTANT_PREFIX + weight.name, weight.name) if k in npz.keys), None
            )
            if key is None:
                continue
            array = npz.get_array(key)
            problem = _misfit(module, weight, array.dtype, array.shape)
            if problem is None:
                arrays[weight.name] = array.read()
            else:
                problems.append(problem)
    if problems:
        raise UserError(problems)
    return arrays


def _read_floats(module: Module, file: Path) -> dict[str, Array]:
    """Return the float32 values before quantization that a file has in the right shapes."""
    found: dict[str, Array] = {}
    with ArrayFile(file, "CONST001").keep_open() as npz:
        for weight in _constants(module):
            key = FLOAT_PREFIX + weight.name
            if key in npz.keys:
                array = npz.get_array(key)
                if array.dtype == np.float32 and array.shape == weight.type.shape:
                    found[weight.name] = _frozen(array.read(), np.dtype(np.float32))
    return found


def _constants(module: Module) -> list[WeightVar]:
    return [weight for weight in module.weights if weight.constant]


def _checked_constants(module: Module, arrays: Arrays) -> dict[str, Array]:
    constants: dict[str, Array] = {}
    problems: list[Diagnostic] = []
    for weight in _constants(module):
        array = arrays.get(CONSTANT_PREFIX + weight.name, arrays.get(weight.name))
        if array is None:
            problems.append(_missing(module, weight, arrays, hints=len(problems) < _MAX_HINTS))
        elif problem := _misfit(module, weight, array.dtype, array.shape):
            problems.append(problem)
        else:
            constants[weight.name] = _frozen(array, weight.type.dtype)
    if problems:
        raise UserError(problems)
    return constants


def _frozen(array: Array, dtype: np.dtype[Any]) -> Array:
    """Return the array read-only; copy it only to change byte order or layout."""
    held = np.asarray(array, dtype=dtype, order="C")
    held.flags.writeable = False
    return held


def _missing(module: Module, weight: WeightVar, arrays: Arrays, hints: bool) -> Diagnostic:
    known = (name.removeprefix(CONSTANT_PREFIX) for name in arrays)
    return Diagnostic(
        "CONST002",
        f"there are no values for %{weight.name}",
        _place(module, weight),
        f"arrays such as {', '.join(list(arrays)[:4])}" if arrays else "no arrays",
        f"an array {CONSTANT_PREFIX}{weight.name} or {weight.name}",
        did_you_mean(weight.name, known) if hints else None,
    )


def _no_values(module: Module) -> UserError:
    """Return one error for all constants if no file with values was given."""
    count = len(_constants(module))
    return fail(
        "CONST002",
        f"there are no values for the program's {count} constants"
        if count > 1
        else f"there are no values for the program's constant %{_constants(module)[0].name}",
        place=Place(module.file),
        found="no file with values",
        expected="an .npz file with an array for each constant",
        hint="Pass --weights FILE.npz.",
    )


def _misfit(
    module: Module, weight: WeightVar, dtype: np.dtype[Any], shape: Shape
) -> Diagnostic | None:
    """Return why an array is not a constant's value, or None; the byte order does not matter."""
    expected = weight.type.dtype
    if dtype.newbyteorder("=") == expected and shape == weight.type.shape:
        return None
    return Diagnostic(
        "CONST003",
        f"the values for %{weight.name} do not match its type",
        _place(module, weight),
        f"{dtype.name} {format_shape(shape)}",
        f"{expected.name} {format_shape(weight.type.shape)}",
    )


def _place(module: Module, weight: WeightVar) -> Place:
    return weight.span.place(module.file)
