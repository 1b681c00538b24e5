"""Changes of a tensor's scale, derived by compiling the program with the new scale.

The module in the bundle is compiled with the old and with the new scale. Where the two programs
differ, numbers depend on the scale. Every layer that writes or reads the tensor is thus adapted in
every arithmetic: factors, biases, clips. A further change builds on the earlier ones.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

import attrs
import numpy as np

from nmpsim.bundle import Bundle, parse_bundle
from nmpsim.bundle.formulas import find_custom_formulas
from nmpsim.bundle.metadata import Layer
from nmpsim.compiler.driver import compile_module
from nmpsim.compiler.operations import Operation
from nmpsim.compiler.resolve import resolve_operands
from nmpsim.compiler.tiling.search import TILINGS
from nmpsim.config import make_device_config
from nmpsim.diagnostics import UserError, fail
from nmpsim.lir.nodes import Module, TensorType
from nmpsim.lir.opcodes import OPCODES, OpcodeKind

WORD_BYTES = 4
Options = tuple[str, bool]
"""Tiling, and whether activations are fused."""


@attrs.frozen(eq=False)
class CompiledProgram:
    """Compiled program: a LIR module, the compiler options and the resulting bundle."""

    module: Module
    options: Options
    bundle: Bundle


@attrs.frozen(eq=False)
class ScaleChange:
    """Change of a tensor's scale: the changed bytes of the program and the affected layers."""

    program: CompiledProgram
    """Program with the new scale."""
    pieces: tuple[tuple[int, bytes], ...]
    """Address and new bytes of each change."""
    producers: tuple[str, ...]
    """Device layers whose output has the new scale."""
    readers: tuple[str, ...]
    """Device layers that read it."""
    host_readers: tuple[str, ...]
    """Host layers that read it; their scales are not in the program's memory."""
    scales: Mapping[str, float]
    """Buffer -> new scale."""


def recompile_bundle(bundle: Bundle, module: Module) -> CompiledProgram:
    """Compile a bundle's module again with the options that reproduce the bundle.

    Raises :class:`~nmpsim.diagnostics.UserError` DEBUG002 if this compiler produces another
    program.
    """
    for options in itertools.product(TILINGS, (True, False)):
        try:
            made = _compile(bundle, module, *options)
        except UserError:
            continue
        if _has_layout(made, bundle):
            return CompiledProgram(module, options, made)
    raise fail(
        "DEBUG002",
        "the scale cannot be changed in the descriptors",
        found="a bundle that differs from what this compiler generates from its LIR",
        expected="a bundle compiled by this version of nmpsim",
        hint="Use `change LAYER scale S alone`, or compile the LIR again.",
    )


def compute_scale_change(original: CompiledProgram, layer: Layer, scale: float) -> ScaleChange:
    """Compute by compilation how a new scale of a layer's output changes the program.

    Raises
    ------
    UserError
        DEBUG002 if the host computes the tensor, or it is an input; COMP001 if a layer cannot have
        such a scale.
    """
    _, operations = resolve_operands(original.module)
    buffers = _same_scale(operations, layer)
    if not buffers <= {view.buffer.name for op in operations for view in op.list_outputs()}:
        raise _cannot_change(layer, "the tensor is an input of the program")
    producers, readers, host_readers = _find_affected_layers(original.bundle, operations, buffers)
    module = _rescale_buffers(original.module, dict.fromkeys(buffers, scale))
    made = _compile(original.bundle, module, *original.options)
    if not _has_layout(made, original.bundle):
        raise _cannot_change(layer, "the program would have another layout")
    pieces = tuple(_find_differences(original.bundle, made))
    scales = dict.fromkeys(sorted(buffers), scale)
    program = CompiledProgram(module, original.options, made)
    return ScaleChange(program, pieces, producers, readers, host_readers, scales)


def apply_scale_changes(
    original: CompiledProgram, changes: Sequence[Iterable[tuple[str, float]]]
) -> CompiledProgram:
    """Apply new scales by buffer name to a program, and compile it again."""
    if not changes:
        return original
    module = replace_scales(original.module, changes)
    return CompiledProgram(
        module, original.options, _compile(original.bundle, module, *original.options)
    )


def replace_scales(module: Module, changes: Iterable[Iterable[tuple[str, float]]]) -> Module:
    """Replace scales of a module by buffer name; constants keep their integers."""
    for change in changes:
        module = _rescale_buffers(module, dict(change))
    return module


def _same_scale(operations: tuple[Operation, ...], layer: Layer) -> frozenset[str]:
    """Return the buffers that must share the scale of a layer's output."""
    found = {
        view.buffer.name
        for op in operations
        for view in op.operands
        if view.name == layer.operand and op.instruction.name in (layer.name, *layer.fused)
    }
    while True:
        tied = {
            name
            for op in operations
            if (names := _find_tied_buffers(op)) and names & found
            for name in names
        }
        if tied <= found:
            return frozenset(found)
        found |= tied


def _find_tied_buffers(op: Operation) -> set[str]:
    """Return the buffers to which an operation gives one scale; none if it rescales."""
    views = [view for view in op.operands if view.type.quant is not None]
    row = OPCODES[op.instruction.opcode]
    same = len({(view.scale, view.offset) for view in views}) == 1
    if row.keeps_scale or (row.kind is OpcodeKind.CLIP and same):
        return {view.buffer.name for view in views}
    return set()


def _find_affected_layers(
    bundle: Bundle, operations: tuple[Operation, ...], buffers: frozenset[str]
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Return the device layers that write and that read the tensors, and host layers that read."""
    owners = {
        name: layer for layer in bundle.metadata.layers for name in (layer.name, *layer.fused)
    }
    layers = [(owners[op.instruction.name], op) for op in operations]
    writers, users = (
        {layer.name: layer for layer, op in layers if buffers & {v.buffer.name for v in views(op)}}
        for views in (Operation.list_outputs, attrgetter("operands"))
    )
    readers = {name: layer for name, layer in users.items() if name not in writers}
    for layer in writers.values():
        if layer.placement == "host":
            raise _cannot_change(layer, f"{layer.display_name} computes the tensor on the host")
    on_host = tuple(name for name, layer in readers.items() if layer.placement == "host")
    return tuple(writers), tuple(name for name in readers if name not in on_host), on_host


def _rescale_buffers(module: Module, buffers: Mapping[str, float]) -> Module:
    """Return the module with new scales of some buffers and of all views of the buffers."""
    scales, instructions = dict(buffers), []
    for one in module.instructions:
        if one.opcode == "tensorview" and one.operands[0].name in scales:
            scales[one.name] = scales[one.operands[0].name]
        if one.opcode in ("tensorview", "allocactivation") and one.name in scales:
            declared = _with_scale(one.attributes["Ty"], scales[one.name])
            one = attrs.evolve(one, attributes={**one.attributes, "Ty": declared})
        instructions.append(one)
    weights = tuple(
        attrs.evolve(one, type=_with_scale(one.type, buffers[one.name]))
        if one.name in buffers
        else one
        for one in module.weights
    )
    return attrs.evolve(module, instructions=tuple(instructions), weights=weights)


def _with_scale(declared: Any, scale: float) -> Any:
    """Return a tensor type with a new scale; types without a scale are returned unchanged."""
    quant = declared.quant if isinstance(declared, TensorType) else None
    if quant is None:
        return declared
    ratio = scale / quant.scale
    low, high = quant.low * ratio, quant.high * ratio
    return attrs.evolve(declared, quant=attrs.evolve(quant, scale=scale, low=low, high=high))


def _compile(bundle: Bundle, module: Module, tiling: str, fuse: bool) -> Bundle:
    metadata = bundle.metadata
    own = {
        name: layer.numerics
        for layer in metadata.layers
        for name in (layer.name, *layer.fused)
        if layer.numerics and layer.numerics != metadata.numerics
    }
    image = compile_module(
        module,
        make_device_config(metadata.device),
        numerics=metadata.numerics,
        layer_numerics=own,
        formulas=find_custom_formulas(metadata.formulas),
        fuse_activations=fuse,
        tiling=tiling,
    )
    return parse_bundle(image)


def _has_layout(one: Bundle, other: Bundle) -> bool:
    """Return whether all symbols and sections have the same addresses."""
    return one.symbols == other.symbols and one.sections == other.sections


def _find_differences(before: Bundle, after: Bundle) -> Iterator[tuple[int, bytes]]:
    """Yield the words of code, descriptors and constants that differ, with their addresses.

    The image also holds the file's headers, which say where its other sections are.
    """
    for start, end in before.sections.values():
        first, words = start - before.image_base, (end - start) // WORD_BYTES
        pieces = slice(first, first + words * WORD_BYTES)
        if first >= 0 and pieces.stop <= before.image.size:
            old, new = (one.image[pieces].reshape(-1, WORD_BYTES) for one in (before, after))
            for word in np.flatnonzero((old != new).any(axis=1)).tolist():
                yield start + WORD_BYTES * word, new[word].tobytes()


def _cannot_change(layer: Layer, why: str) -> UserError:
    return fail(
        "DEBUG002",
        f"the scale of {layer.display_name} cannot be changed in the program's memory",
        found=why,
        hint="Change the scale in the LIR, then compile it again.",
    )
