"""``--input [NAME=]FILE``: which array of which file goes to which input of the program."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from nmpsim.cli.arrays import ArrayFile, StoredArray
from nmpsim.diagnostics import Place, UserError, fail
from nmpsim.views.text import plural, shape_text

if TYPE_CHECKING:
    import numpy.typing as npt

    from nmpsim.bundle.metadata import Tensor

PREFIX = "input/"
"""What the files of recorded runs write before an input's name."""


def load_inputs(arguments: Sequence[str], inputs: Sequence[Tensor]) -> dict[str, npt.NDArray[Any]]:
    """The arrays that the arguments of ``--input`` give to the program's inputs.

    Raises :class:`~nmpsim.diagnostics.UserError`: INPUT001 for a missing, unknown or ambiguous
    input, INPUT002 for one of the wrong size, FILE001 and INPUT003 for the files.
    """
    tensors = {tensor.name: tensor for tensor in inputs}
    stored = _stored_arrays(arguments, tensors)
    return {name: _read(array, tensors[name]) for name, array in stored.items()}


def fitting_inputs(
    arguments: Sequence[str], inputs: Sequence[Tensor]
) -> dict[str, npt.NDArray[Any]]:
    """As :func:`load_inputs`; what a run would refuse is refused here, with its file.

    Raises :class:`~nmpsim.diagnostics.UserError`: besides, INPUT002 for an input of the wrong shape
    or type, or with NaN in it.
    """
    from nmpsim.core.inputs import mismatch

    values = load_inputs(arguments, inputs)
    for tensor in inputs:
        wrong = mismatch(tensor, values[tensor.name])
        if wrong is not None:
            stored = _stored_arrays(arguments, {tensor.name: tensor for tensor in inputs})
            place = Place(str(stored[tensor.name].file.path))
            raise UserError(attrs.evolve(wrong, place=place))
    return values


def _stored_arrays(arguments: Sequence[str], tensors: dict[str, Tensor]) -> dict[str, StoredArray]:
    """The array of each input in its file, not yet read."""
    found: dict[str, StoredArray] = {}
    for argument in arguments:
        for name, array in _arrays_of(argument, tensors).items():
            if name in found:
                place = Place(str(array.file.path))
                raise fail("INPUT001", f"input {name!r} is given twice", place=place)
            found[name] = array
    _check_complete(found, tensors)
    return found


def input_path(argument: str, names: Sequence[str]) -> Path:
    """The file of an argument of ``--input``."""
    return split_argument(argument, names)[1]


def _arrays_of(argument: str, tensors: dict[str, Tensor]) -> dict[str, StoredArray]:
    name, path = split_argument(argument, list(tensors))
    file = ArrayFile(path)
    if name is not None:
        return {name: _array_for(name, file)}
    if file.is_archive:
        return _matching(file, tensors)
    if len(tensors) != 1:
        raise fail(
            "INPUT001",
            "this file does not say which input it is",
            place=Place(str(path)),
            expected=f"one of the inputs {_listed(tensors)}",
            hint=f"--input {next(iter(tensors), 'NAME')}={path}",
        )
    return {next(iter(tensors)): file.array("")}


def split_argument(argument: str, names: Sequence[str]) -> tuple[str | None, Path]:
    """Name and path of an argument; a name may hold ``=`` and so may a path that exists.

    Raises INPUT001 for a name that is none of ``names``.
    """
    for name in sorted(names, key=len, reverse=True):
        for prefix in (name, PREFIX + name):
            if argument.startswith(prefix + "="):
                return name, Path(argument[len(prefix) + 1 :])
    head, equals, _ = argument.partition("=")
    if not equals or "/" in head or Path(argument).exists():
        return None, Path(argument)
    raise _unknown(head, names, None)


def _unknown(name: str, names: Sequence[str], place: Place | None) -> UserError:
    near = difflib.get_close_matches(name, names, 1)
    return fail(
        "INPUT001",
        f"the program has no input {name!r}",
        place=place,
        expected=_listed(names) or "no input at all",
        hint=f"did you mean {near[0]!r}?" if near else "`nmpsim inspect` shows the inputs",
    )


def _array_for(name: str, file: ArrayFile) -> StoredArray:
    """The array of a file that the user gave for this input."""
    if len(file.keys) == 1:
        return file.array(file.keys[0])
    for key in (name, PREFIX + name):
        if key in file.keys:
            return file.array(key)
    raise _no_match(file, [name])


def _matching(file: ArrayFile, tensors: dict[str, Tensor]) -> dict[str, StoredArray]:
    """Every input that an archive holds, with or without prefix."""
    found = {
        name: file.array(key)
        for name in tensors
        for key in (PREFIX + name, name)  # the plain name wins
        if key in file.keys
    }
    if not found:
        raise _no_match(file, list(tensors))
    return found


def _no_match(file: ArrayFile, names: Sequence[str]) -> UserError:
    return fail(
        "INPUT001",
        "none of the file's arrays is an input of the program",
        place=Place(str(file.path)),
        found=_listed(file.keys) or "no arrays",
        expected=_listed(names) or "no input at all",
        hint=_rename_hint(file, names),
    )


def _rename_hint(file: ArrayFile, names: Sequence[str]) -> str:
    keys = [key.removeprefix(PREFIX) for key in file.keys]
    for name in names:
        near = difflib.get_close_matches(name, keys, 1)
        if near:
            return f"is {near[0]!r} meant to be {name!r}?"
    return "save the arrays under the names of the inputs"


def _check_complete(found: dict[str, StoredArray], tensors: dict[str, Tensor]) -> None:
    missing = [name for name in tensors if name not in found]
    if missing:
        hint = " ".join(f"--input {name}=FILE.npy" for name in missing[:4])
        raise fail(
            "INPUT001",
            f"no value for {'input' if len(missing) == 1 else 'inputs'} {_listed(missing)}",
            found=f"values for {_listed(found)}" if found else "no value for any input",
            hint=hint,
        )


def _read(array: StoredArray, tensor: Tensor) -> npt.NDArray[Any]:
    """The array, unless it cannot fit; the session checks the rest of shape and type."""
    expected = 1
    for dim in tensor.shape:
        expected *= dim
    if array.size != expected:
        raise fail(
            "INPUT002",
            f"input {tensor.name!r} is of another size",
            place=Place(str(array.file.path)),
            found=f"{shape_text(array.shape)}, {plural(array.size, 'value')}",
            expected=f"{shape_text(tensor.shape)}, {plural(expected, 'value')}",
        )
    return array.read()


def _listed(names: Sequence[str] | dict[str, Any]) -> str:
    shown = [repr(name) for name in list(names)[:8]]
    return ", ".join(shown) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
