"""Recorded layers of a program, which dumps of a device determine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np

from nmpsim.analysis.identify.dumps import CONSTANT_PREFIX, Dumps
from nmpsim.analysis.identify.layers import (
    OPERATION_KINDS,
    AnyLayer,
    RecordedLayer,
    RecordedOperation,
    align_offsets,
)
from nmpsim.analysis.program import Program
from nmpsim.analysis.weighted import read_weighted_scales
from nmpsim.arrays import Array
from nmpsim.compiler.assign import assign_numerics
from nmpsim.compiler.clip_bounds import get_clip_range
from nmpsim.compiler.fuse import fuse_clips
from nmpsim.compiler.operations import BufferView, Operation
from nmpsim.compiler.placement import assign_placement
from nmpsim.compiler.resolve import get_instruction_place, resolve_operands
from nmpsim.kernels.hostops.tensors import HostTensor, UnsupportedHostOp
from nmpsim.lir.host_execution import execute_operation
from nmpsim.lir.nodes import Module
from nmpsim.lir.opcode import INOUT, WEIGHTED, OpcodeKind

_EXACT = frozenset(
    {
        OpcodeKind.MOVE,
        OpcodeKind.FILL,
        OpcodeKind.MAX_POOL,
        OpcodeKind.CONVERSION,
        OpcodeKind.CLIP,
    }
)
"""Operations that are executed if a dump lacks their result."""


def list_operations(program: Program) -> list[Operation]:
    """Return the operations of a program with fused activations."""
    assigned = assign_numerics(
        resolve_operands(program.module)[1], program.numerics, program.layer_numerics
    )
    return list(fuse_clips(assign_placement(assigned, program.device)))


def find_transpose_sources(program: Program) -> dict[str, str]:
    """Find the source of each transposed tensor, by name; other tensors are their own source."""
    found = {name: name for name in resolve_operands(program.module)[0]}
    for op in list_operations(program):
        if op.instruction.opcode == "transpose":
            found[op.output.name] = op.list_inputs()[0].name
    return found


def list_result_names(op: Operation) -> list[str]:
    """Return the names under which the result of an operation may be recorded.

    Operations may share a buffer, so the name of the instruction comes first.
    """
    view = op.output
    is_mean = op.kind is OpcodeKind.AVERAGE_POOL  # TFLite's MEAN writes a view of its result
    is_whole = view.type.elements * view.element_bytes == view.buffer.nbytes
    return [
        op.last_fused.instruction.name, view.name, *[view.buffer.name] * (is_mean and is_whole)
    ]  # fmt: skip


def read_layers(program: Program, dumps: Dumps) -> tuple[list[AnyLayer], list[str]]:
    """Read recorded layers from dumps; also return the names of layers whose values are missing.

    Operations without weights are not missing.
    """
    module, replaced = _replace_constants(program.module, dumps)
    known: dict[str, Array] = {}
    uncertain = set(dumps.by_order)
    """Instructions and buffers whose values were matched by order."""
    for name, view in resolve_operands(module)[0].items():
        if view.buffer.constant:
            continue
        found = dumps.read(view, (name,), is_weight=True)
        if found is not None:
            known[name] = found
    layers, missing = list[AnyLayer](), list[str]()
    names = {tensor.name for tensor in program.list_inputs()}
    program_inputs = {name: values for name, values in known.items() if name in names}
    for op in list_operations(program):
        own, result = _read_results(op, dumps)
        inputs = [_read_view(known, module, view) for view in op.list_inputs()]
        if op.kind in WEIGHTED and op.operands[0].is_narrow:
            layer, recorded = None, result if own is None else own
            if recorded is not None and inputs[0] is not None:
                layer = make_recorded_layer(
                    module, op, inputs[0], recorded, is_activated=own is None
                )
            if layer is not None:
                is_replaced = any(view.buffer.name in replaced for view in op.operands[2:4])
                layer = attrs.evolve(
                    layer, program_inputs=program_inputs, has_recorded_constants=is_replaced
                )
            sources = {op.last_fused.instruction.name, op.operands[1].buffer.name}
            if layer is not None and sources & uncertain:
                layer = attrs.evolve(layer, is_by_order=True)
            layers += [layer] if layer else []
            missing += [] if layer else [op.instruction.name]
        recorded = result if own is None else own
        if recorded is not None and all(one is not None for one in inputs):
            operation = _make_recorded_operation(module, op, inputs, recorded, own is None)
            if operation is not None:
                names = {op.last_fused.instruction.name, *(v.buffer.name for v in op.list_inputs())}
                is_by_order = not names.isdisjoint(uncertain)
                layers.append(attrs.evolve(operation, is_by_order=is_by_order))
        sources = {op.last_fused.instruction.name}
        if result is None:
            sources |= {view.buffer.name for view in op.list_inputs()}
        if sources & uncertain:
            uncertain.add(op.output.buffer.name)
        else:
            uncertain.discard(op.output.buffer.name)
        result = _compute_result(op, program, own, result, inputs)
        _set_result(known, op, result)
    return layers, missing


def _replace_constants(module: Module, dumps: Dumps) -> tuple[Module, list[str]]:
    """Return a module with the constants of dumps in place of its own, and their names."""
    found = {}
    for name, values in module.constants.items():
        key = CONSTANT_PREFIX + name
        if key in dumps.keys:
            found[name] = dumps.read_constant(key, values)
    return attrs.evolve(module, constants={**module.constants, **found}), list(found)


def estimate_results(program: Program, dumps: Dumps) -> dict[str, Array]:
    """Estimate results that are not recorded from recorded values.

    Returns the first item of each result by name of the instruction.
    """
    known: dict[str, Array] = {}
    for name, view in resolve_operands(program.module)[0].items():
        found = None if view.buffer.constant else dumps.read(view, (name,), is_weight=True)
        if found is not None:
            known[name] = found[:1]
    estimates = {}
    for op in list_operations(program):
        own, result = _read_results(op, dumps)
        inputs = [_read_view(known, program.module, view) for view in op.list_inputs()]
        is_known = own is not None or result is not None
        if not is_known and all(one is not None for one in inputs):
            result = _estimate_result(op, program, inputs)
            if result is not None:
                estimates[op.instruction.name] = result[0]
        elif result is None and own is not None:
            result = np.clip(own, op.clip_low, op.clip_high)
        _set_result(known, op, None if result is None else result[:1])
    return estimates


def _estimate_result(op: Operation, program: Program, inputs: list[Any]) -> Array | None:
    """Return the result of an operation with real factors, or None if it is unsupported."""
    view = op.output
    if op.kind not in WEIGHTED or not op.operands[0].is_narrow:
        result = _execute(op, program, inputs)
        if result is not None and op.fused:
            result = np.clip(result, op.clip_low, op.clip_high)
        return result
    empty = np.zeros((1, *op.operands[0].shape), view.type.dtype)
    layer = make_recorded_layer(program.module, op, inputs[0], empty)
    if layer is None:
        return None
    estimate = layer.estimate_results(next(layer.iterate_samples()))
    return estimate.astype(view.type.dtype).reshape(1, *view.shape)


def _set_result(known: dict[str, Array], op: Operation, result: Array | None) -> None:
    """Set the known values of an operation's buffer, which must be those of the result."""
    view = op.output
    if result is None or view.type.elements * view.element_bytes != view.buffer.nbytes:
        known.pop(view.buffer.name, None)
    else:
        known[view.buffer.name] = result


def _read_results(op: Operation, dumps: Dumps) -> tuple[Array | None, Array | None]:
    """Return the recorded results of an operation before and after its fused activations."""
    view, names = op.output, list_result_names(op)
    if not op.fused:
        return None, dumps.read(view, names)
    own = dumps.read(op.operands[0], [op.instruction.name])
    if own is not None and op.operands[0].buffer.name == view.buffer.name:
        names = names[:1]
    return own, dumps.read(view, names)


def _compute_result(
    op: Operation, program: Program, own: Array | None, result: Array | None, inputs: list[Any]
) -> Array | None:
    """Return the result of an operation, computed if it is not recorded but exact, else None."""
    if result is not None:
        return result
    if own is not None:
        return np.clip(own, op.clip_low, op.clip_high)
    is_exact = op.kind in _EXACT and all(one is not None for one in inputs)
    return _execute(op, program, inputs) if is_exact else None


def _read_view(known: Mapping[str, Array], module: Module, view: BufferView) -> Array | None:
    """Return the known values [N, *shape] of a view, or None."""
    if view.buffer.name in module.constants:
        return view.get_constant_values(module.constants)[None]
    whole = known.get(view.buffer.name)
    if whole is None:
        return None
    flat = whole.reshape(len(whole), -1)
    start = view.byte_offset // view.element_bytes
    return flat[:, start : start + view.type.elements].reshape(len(whole), *view.shape)


def _execute(op: Operation, program: Program, inputs: list[Any]) -> Array | None:
    """Return the results of an operation for each item of a batch, or None if unsupported."""
    target, items = op.operands[0], max(map(len, inputs), default=1)
    views = op.list_inputs()
    has_target = op.instruction.operands[0].kind != INOUT
    results = []
    try:
        for item in range(items):
            empty = np.zeros(target.shape, target.type.dtype)
            tensors = [_make_tensor(target, empty)] if has_target else []
            tensors += [
                _make_tensor(view, one[item % len(one)])
                for view, one in zip(views, inputs, strict=True)
            ]
            made = execute_operation(
                op.instruction.opcode, tensors, op.instruction.attributes, program.numerics
            )
            results.append(made.outputs[0])
    except (UnsupportedHostOp, ValueError, KeyError):
        return None
    return np.stack(results)


def _make_tensor(view: BufferView, values: Array) -> HostTensor:
    if view.type.quant is None:
        return HostTensor(values)
    return HostTensor(values, view.scale, view.offset, quantized=True)


def make_recorded_layer(
    module: Module, op: Operation, inputs: Array, results: Array, *, is_activated: bool = True
) -> RecordedLayer | None:
    """Make a recorded layer; return None if the operation lacks quantized constant weights.

    ``is_activated`` states whether the results include the fused activations.
    """
    scales = read_weighted_scales(module, op)
    view = op.operands[2]
    if scales is None or view.buffer.name not in module.constants:
        return None
    count = min(len(inputs), len(results))
    values = view.get_constant_values(module.constants).astype(np.int64)
    bounds = _get_bounds(op, is_activated)
    if op.instruction.attributes.get("FusedActivation") == "LEAKY_RELU":
        # Results below zero have a formula of their own; the others are those of a ReLU.
        bounds = max(bounds[0], scales.target.offset), bounds[1]
        results = np.maximum(results, bounds[0])
    return RecordedLayer(
        op,
        scales,
        values - align_offsets(op, scales, values.ndim),
        inputs[:count],
        results[:count],
        bounds,
    )


def _get_bounds(op: Operation, is_activated: bool) -> tuple[int, int]:
    """Return the range to which an operation clips results, with its fused activations if set."""
    clip = (op.clip_low, op.clip_high) if op.fused and is_activated else (None, None)
    low, high = get_clip_range(op, op.operands[0])
    return (
        low if clip[0] is None else max(low, clip[0]),
        high if clip[1] is None else min(high, clip[1]),
    )


def _make_recorded_operation(
    module: Module, op: Operation, inputs: list[Any], results: Array, is_activated: bool
) -> RecordedOperation | None:
    """Make a recorded operation without weights; return None for other kinds of operations."""
    views, attributes = op.operands, op.instruction.attributes
    is_volume = op.kind is OpcodeKind.AVERAGE_POOL and len(views[0].shape) != 4
    if op.instruction.opcode not in OPERATION_KINDS or is_volume:
        return None
    if not all(one.is_narrow and one.element == views[0].element for one in views):
        return None
    if attributes.get("FusedActivation") == "LEAKY_RELU":
        return None
    count = min(len(results), *(len(one) for one in inputs if len(one) > 1), 1 << 30)
    inputs = [one[:count] for one in inputs]
    place = get_instruction_place(op.instruction, module.file)
    bounds = _get_bounds(op, is_activated)
    return RecordedOperation(op, place, tuple(inputs), results[:count], bounds)
