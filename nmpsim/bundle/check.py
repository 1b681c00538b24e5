"""Consistency checks of a bundle's metadata; the first problem is reported."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import attrs

from nmpsim.bundle.formulas import find_custom_formulas
from nmpsim.bundle.limits import DIMENSION, ELEMENTS, RANK
from nmpsim.bundle.metadata import UNSIGNED_ELEMS, Layer, Metadata, ProgramStep, Tensor
from nmpsim.diagnostics import Place, UserError, fail
from nmpsim.lir.nodes import ELEM_DTYPES, MODULE_ELEMS
from nmpsim.records import frozen

Range = tuple[int, int]
"""Half-open range of addresses."""


@frozen
class MemoryRanges:
    """Address ranges of the image, the read-write memory and the code of a bundle."""

    image: Range
    read_write: Range
    text: tuple[Range, ...]


def check_metadata(metadata: Metadata, memory: MemoryRanges, place: Place) -> None:
    """Raise UserError (BUN002) if the metadata of a bundle is inconsistent."""
    for message in _problems(metadata, memory):
        raise _inconsistent(message, place)


def _inconsistent(message: str, place: Place) -> UserError:
    return fail(
        "BUN002",
        f"the metadata of the bundle is inconsistent: {message}",
        place=place,
        hint="Compile the network again.",
    )


def _problems(metadata: Metadata, memory: MemoryRanges) -> Iterator[str]:
    yield from _formula_problems(metadata)
    for tensor in (*metadata.inputs, *metadata.outputs):
        yield from _tensor_problems(tensor, [memory.read_write])
    yield from _name_problems("input", metadata.inputs)
    yield from _name_problems("output", metadata.outputs)
    for tensor in (*metadata.inputs, *metadata.outputs):
        if tensor.name in metadata.unsigned and tensor.elem not in UNSIGNED_ELEMS:
            yield f"{tensor.name!r} of element type {tensor.elem} cannot be unsigned"
    for tensor in metadata.states:
        yield from _tensor_problems(tensor, [memory.image])
        yield from _state_problems(tensor, metadata)
    for position, layer in enumerate(metadata.layers):
        yield from _layer_problems(position, layer, memory)
    for position, step in enumerate(metadata.steps):
        for message in _step_problems(step, metadata.layers, memory):
            yield f"step {position}: {message}"
    done = sorted(index for step in metadata.steps for index in step.layers)
    if done != list(range(len(metadata.layers))):
        yield f"the steps compute the layers {done[:40]} instead of 0 to {len(metadata.layers) - 1}"


def _formula_problems(metadata: Metadata) -> Iterator[str]:
    try:
        custom = find_custom_formulas(metadata.formulas)
    except UserError as error:
        yield str(error.diagnostics[0].message)
        return
    if custom is not None and custom.base != metadata.numerics:
        yield f"the formulas are based on {custom.base}, but the numerics are {metadata.numerics}"


def _name_problems(what: str, tensors: Sequence[Tensor]) -> Iterator[str]:
    names = [tensor.name for tensor in tensors]
    for name in names:
        if names.count(name) > 1:
            yield f"{names.count(name)} {what}s have the name {name!r}"


def _state_problems(initial: Tensor, metadata: Metadata) -> Iterator[str]:
    for what, tensors in (("input", metadata.inputs), ("output", metadata.outputs)):
        found = [one for one in tensors if one.name == initial.name]
        if not any(attrs.evolve(one, address=initial.address) == initial for one in found):
            yield f"the state tensor {initial.name!r} is no {what} of its type"


def _layer_problems(position: int, layer: Layer, memory: MemoryRanges) -> Iterator[str]:
    if layer.index != position:
        yield f"layer {position} has the index {layer.index}"
    yield from _tensor_problems(layer.output, [memory.read_write])


def _step_problems(
    step: ProgramStep, layers: Sequence[Layer], memory: MemoryRanges
) -> Iterator[str]:
    for index in step.layers:
        if not 0 <= index < len(layers):
            yield f"it computes layer {index}, but the layers are 0 to {len(layers) - 1}"
        elif layers[index].placement != step.kind:
            yield f"layer {index} is not placed on the {step.kind}"
    if step.kind == "device":
        yield from _device_step_problems(step, memory)
    else:
        yield from _host_step_problems(step, memory)


def _device_step_problems(step: ProgramStep, memory: MemoryRanges) -> Iterator[str]:
    for name in ("opcode", "operands", "attributes"):
        if getattr(step, name) not in (None, (), {}):
            yield f"it is a step of the device, but has {name}"
    entry = step.entry
    if entry is None:
        yield "it is a step of the device, but has no entry"
    elif entry % 4 or not any(start <= entry < end for start, end in memory.text):
        yield f"entry {entry:#x} is not in the code"


def _host_step_problems(step: ProgramStep, memory: MemoryRanges) -> Iterator[str]:
    if step.entry is not None:
        yield f"it is a step of the host, but has the entry {step.entry:#x}"
    if step.opcode is None:
        yield "it is a step of the host, but has no opcode"
    for operand in step.operands:
        readable = [memory.image] if operand.role == "in" else []
        yield from _tensor_problems(operand.tensor, [memory.read_write, *readable])


def _tensor_problems(tensor: Tensor, ranges: Sequence[Range]) -> Iterator[str]:
    """Yield at most one problem, since later rules depend on earlier ones."""
    dtype = ELEM_DTYPES[tensor.elem] if tensor.elem in MODULE_ELEMS else None
    if dtype is None:
        yield f"tensor {tensor.name!r} has the unknown element type {tensor.elem!r}"
    elif RANK.find_problem(len(tensor.shape)) or any(map(DIMENSION.find_problem, tensor.shape)):
        yield f"tensor {tensor.name!r} has the invalid shape {tensor.shape}"[:200]
    elif (tensor.scale is None) != (tensor.offset is None):
        yield f"tensor {tensor.name!r} has only one of scale and offset"
    elif tensor.scale is not None and not (math.isfinite(tensor.scale) and tensor.scale > 0):
        yield f"tensor {tensor.name!r} has the invalid scale {tensor.scale}"
    elif tensor.address % dtype.itemsize:
        yield f"tensor {tensor.name!r} is misaligned at {tensor.address:#x}"
    else:
        end = tensor.address + math.prod(tensor.shape) * dtype.itemsize
        if not any(low <= tensor.address and end <= high for low, high in ranges):
            yield f"tensor {tensor.name!r} at {tensor.address:#x} lies outside its memory"
        elif problem := ELEMENTS.find_problem(math.prod(max(n, 1) for n in tensor.shape)):
            yield f"tensor {tensor.name!r} has an invalid shape: {problem}"
