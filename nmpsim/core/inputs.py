"""Check and conversion of the user's inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from nmpsim.arrays import Array, Arrays, Shape
from nmpsim.bundle import Bundle
from nmpsim.bundle.metadata import UNSIGNED_ELEMS, Tensor
from nmpsim.diagnostics import Diagnostic, UserError, did_you_mean, fail
from nmpsim.isa.profiles import DEFAULT_NUMERICS, NUMERICS_NAMES
from nmpsim.kernels.hostops import HostTensor
from nmpsim.lir.host_execution import execute_operation
from nmpsim.lir.nodes import ELEM_DTYPES

Inputs = Arrays | Sequence[Array] | Array
"""Inputs by name, in the program's order, or the array of a program's only input."""


def prepare_inputs(
    bundle: Bundle, given: Inputs, states: Arrays = MappingProxyType({})
) -> dict[str, Array]:
    """Check the user's inputs and convert them to the element types of the program.

    Real values for a quantized input are quantized as the program's profile does it. State tensors
    that are not given have the value in ``states``, by default their initial value.

    Raises
    ------
    UserError
        INPUT001 or INPUT002 if the inputs do not fit the program.
    """
    metadata = bundle.metadata
    tensors = metadata.inputs
    states = {**bundle.read_initial_state(), **states}
    numerics = metadata.numerics if metadata.numerics in NUMERICS_NAMES else DEFAULT_NUMERICS
    names = [tensor.name for tensor in tensors]
    given = _by_name(given, [name for name in names if name not in states])
    findings = [
        Diagnostic(
            "INPUT001",
            f"the program has no input {name!r}",
            found=f"a value for {name!r}",
            expected=", ".join(names) or "no inputs",
            hint=did_you_mean(name, names),
        )
        for name in given
        if name not in names
    ]
    values: dict[str, Array] = {}
    for tensor in tensors:
        if tensor.name not in given and tensor.name in states:
            values[tensor.name] = states[tensor.name]
            continue
        if tensor.name not in given:
            findings.append(
                Diagnostic(
                    "INPUT001",
                    f"input {tensor.name!r} is missing",
                    expected=f"{metadata.user_tensor(tensor).elem} of shape {_shape(tensor.shape)}",
                    hint=f"Pass --input {tensor.name}=FILE.npy.",
                )
            )
            continue
        array = np.asarray(given[tensor.name])
        wrong = find_mismatch(metadata.user_tensor(tensor), array)
        if wrong:
            findings.append(wrong)
        else:
            values[tensor.name] = _converted(tensor, array, numerics)
    if findings:
        raise UserError(findings)
    return values


def _by_name(given: Inputs, names: list[str]) -> Arrays:
    if isinstance(given, Mapping):
        return given
    if isinstance(given, np.ndarray) and len(names) == 1:
        return {names[0]: given}
    if not isinstance(given, (list, tuple)):
        raise fail(
            "INPUT001",
            "the inputs have the wrong type",
            found=f"a {type(given).__name__}",
            expected=f"a mapping such as {{{names[0] if names else 'name'!r}: array}}, or a list",
        )
    if len(given) != len(names):
        raise fail(
            "INPUT001",
            "too many inputs" if len(given) > len(names) else "too few inputs",
            found=f"{len(given)} inputs",
            expected=f"{len(names)} inputs: {', '.join(names)}" if names else "no inputs",
        )
    return dict(zip(names, given, strict=True))


def _shape(shape: Shape) -> str:
    return " x ".join(map(str, shape)) or "a scalar"


def find_mismatch(tensor: Tensor, values: Array) -> Diagnostic | None:
    """Return the error (INPUT002) if an array does not fit an input, else None."""
    if values.shape != tensor.shape:
        hint = None
        if values.size == np.prod(tensor.shape, dtype=np.int64):
            hint = "Reshape the array: it has the right number of elements."
        return Diagnostic(
            "INPUT002",
            f"input {tensor.name!r} has the wrong shape",
            found=_shape(values.shape),
            expected=_shape(tensor.shape),
            hint=hint,
        )
    own = ELEM_DTYPES[tensor.elem]
    real = values.dtype.kind == "f"
    if real and values.size and np.isnan(np.minimum.reduce(values, None)):
        first = tuple(int(i) for i in np.argwhere(np.isnan(values))[0])
        return Diagnostic(
            "INPUT002",
            f"input {tensor.name!r} contains NaN",
            found=f"{int(np.isnan(values).sum())} NaN, the first at {list(first)}",
            expected="values other than NaN",
        )
    takes_real = tensor.scale is not None or own.kind == "f"
    if values.dtype == own or (real and takes_real) or _image_bytes(values, own):
        return None
    return Diagnostic(
        "INPUT002",
        f"input {tensor.name!r} has the wrong type",
        found=str(values.dtype),
        expected=f"{own}" + (" or a float type, which is quantized" if tensor.scale else ""),
    )


def _image_bytes(values: Array, own: np.dtype[Any]) -> bool:
    """Return whether values are integers for a float input, such as the bytes of an image."""
    return own.kind == "f" and values.dtype.kind in "iu"


def _converted(tensor: Tensor, values: Array, numerics: str) -> Array:
    own = ELEM_DTYPES[tensor.elem]
    if tensor.elem in UNSIGNED_ELEMS and values.dtype.kind == "u":
        return (values.astype(np.int32) - UNSIGNED_ELEMS[tensor.elem][1]).astype(own)
    if values.dtype == own or own.kind == "f":
        with np.errstate(over="ignore"):
            return values.astype(own)
    target = HostTensor(np.zeros(tensor.shape, own), tensor.scale or 1.0, tensor.offset or 0, True)
    real = HostTensor(values.astype(np.float32))
    return execute_operation("quantize", (target, real), {}, numerics).outputs[0]
