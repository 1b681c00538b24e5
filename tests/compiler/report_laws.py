"""Laws that hold for every report, and expected counts of clipped values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from itertools import groupby
from typing import Any

import attrs
import numpy as np
from lir_oracle import Execution

from nmpsim.config import DeviceConfig
from nmpsim.kernels.hostops import HostTensor
from nmpsim.kernels.hostops.rounding import quantize_value
from nmpsim.lir.host_execution import execute_operation
from nmpsim.report.data import LayerReport, RunReport

Array = np.ndarray[Any, Any]
GLOW = ("glow-int", "glow-float")
CLIPPING = ("RELU", "CLIP")
AFTER_THE_LAST = 2
"""Cycles of a core after the last barrier of a program."""
ASKED = ("relu", "clip", "cpumaxsplat")


def check_laws(report: RunReport, config: DeviceConfig) -> None:
    """Assert that parts add up to their totals and no layer exceeds the device's throughput."""
    assert report.trap is None, report.trap
    assert sum(layer.cycles for layer in report.layers) == report.cycles
    for name, group in groupby(report.layers, lambda layer: layer.chain or layer.name):
        layers = list(group)
        if layers[0].placement == "device":
            check_device_layers(name, layers, config)
        else:
            assert layers[0].cycles >= config.host_operation_cycles


def check_device_layers(name: str, layers: Sequence[LayerReport], config: DeviceConfig) -> None:
    """Assert the laws of a layer, or those of a chain, whose layers overlap in time.

    The cycles of a chain are divided by work; those of a core belong to the layer it computes.
    """
    cores, cycles = config.cores_count, sum(layer.cycles for layer in layers)
    causes, busy = Counter[str](), Counter[str]()
    for layer in layers:
        causes.update(layer.core_cycles)
        busy.update(layer.busy)
        assert min(layer.core_cycles.values()) >= 0, layer.name
        assert sum(layer.critical_path.values()) == layer.cycles, layer.name
        assert cycles >= layer.bound.cycles, (layer.name, layer.bound)
    assert sum(causes.values()) == cores * cycles, name
    assert sum(sum(layer.stalls.values()) for layer in layers) == cores * cycles, name
    assert causes["mac"] == busy["mac"] <= cores * cycles, name
    assert causes["vector"] <= busy["vector"] <= cores * cycles, name
    assert busy["load"] + busy["store"] <= cycles * config.dram_channels, name
    lanes = config.mac_out_lanes * config.mac_in_lanes
    executed = sum(layer.macs + layer.repeated_macs for layer in layers)
    assert cycles * cores * lanes >= executed, name
    moved = sum(layer.bytes_read + layer.bytes_written for layer in layers)
    assert cycles * config.dram_bytes_per_cycle >= moved, name
    if len(layers) == 1:
        idle = (cores - layers[0].cores) * cycles
        assert 0 <= idle - causes["unused"] <= cores * AFTER_THE_LAST, name


def count_multiplications(done: Execution) -> int:
    """Return the number of multiplications that a layer needs."""
    opcode, operands = done.instruction.opcode, done.operands
    if "convolution" in opcode:
        return done.result.size * int(np.prod(operands[2].shape[1:]))
    if "fullyconnected" in opcode or opcode == "matmul":
        return done.result.size * operands[1].shape[-1]
    return 0


def limits(done: Execution) -> tuple[int, int]:
    """Return the limits of the result's element type."""
    info = np.iinfo(done.result.dtype)
    return int(info.min), int(info.max)


Overshoots = dict[tuple[str, str], list[Array]]
"""Stage and side -> by how much each value was cut (0 or less: it was not), clip by clip."""


def summarize_overshoots(overshoots: Overshoots) -> dict[tuple[str, str], tuple[Any, ...]]:
    """Return count, worst value, first coordinates and channels in the form of a report."""
    cut = {key: overs for key, overs in overshoots.items() if any((o > 0).any() for o in overs)}
    return {key: _summarize(overs) for key, overs in cut.items()}


def _summarize(overs: list[Array]) -> tuple[Any, ...]:
    shape = overs[0].shape
    hits = sum((over > 0).astype(np.int64) for over in overs)
    assert isinstance(hits, np.ndarray)
    by_channel = hits.reshape(-1, shape[-1] if shape else 1).sum(axis=0)
    channels = tuple((int(c), int(by_channel[c])) for c in np.nonzero(by_channel)[0])
    first = tuple(int(i) for i in np.unravel_index(int(np.argmax(hits > 0)), shape))
    return int(hits.sum()), max(int(over.max()) for over in overs), first, channels


@attrs.frozen(eq=False)
class LaterExecutions:
    """Executions after an instruction, and the buffers that are read after the run."""

    instructions: Sequence[Execution]
    outliving: Collection[str]
    """Buffers that are read after the run."""


def find_following_clips(done: Execution, later: LaterExecutions) -> list[Execution]:
    """Return the chain of activations on the result's scale, each the only reader of its input."""
    if done.places[0][0] in later.outliving:
        return []
    users = [
        one for one in later.instructions if done.places[0][0] in {place[0] for place in one.places}
    ]
    if not users or users[0].instruction.opcode not in ASKED:
        return []
    reader = users[0]
    target, source = reader.operands[:2]
    is_whole = reader.places[1] == done.places[0]
    same_scale = (target.scale, target.offset) == (source.scale, source.offset)
    same_scale &= (source.scale, source.offset) == (
        done.operands[0].scale,
        done.operands[0].offset,
    )
    in_place = reader.places[0][0] == reader.places[1][0]
    if not is_whole or not same_scale or not (in_place or len(users) == 1):
        return []
    rest = later.instructions[later.instructions.index(reader) + 1 :]
    return [reader, *find_following_clips(reader, LaterExecutions(rest, later.outliving))]


def find_requested_sides(parts: Sequence[Execution], after: Sequence[Execution]) -> set[str]:
    """Return the sides on which the network asks for a bound within the first result's type.

    A bound of an activation in ``after`` counts only if it is the end of the type.
    """
    dest, sides = parts[0].operands[0], set()
    lowest, highest = limits(parts[0])
    if dest.offset == lowest:
        sides.add("low")
    for one in (*parts, *after):
        attributes = one.instruction.attributes
        opcode, kind = one.instruction.opcode, attributes.get("FusedActivation")
        bounds: Any = (None, None)
        if opcode == "relu" or kind == "RELU":
            bounds = 0.0, None
        elif opcode == "clip":
            bounds = attributes["Min"], attributes["Max"]
        elif opcode == "cpumaxsplat":
            bounds = attributes["SplatValue"], None
        elif kind == "CLIP":
            bounds = attributes["FusedActivationArgs"]
        for side, bound in zip(("low", "high"), bounds, strict=True):
            if bound is None:
                continue
            on_grid = np.rint(
                np.float32(np.float32(bound) / dest.scale32) + np.float32(dest.offset)
            )
            end = lowest if side == "low" else highest
            is_within = on_grid >= lowest if side == "low" else on_grid <= highest
            if is_within and (one in parts or on_grid == end):
                sides.add(side)
    return sides


def compute_overshoots(parts: Sequence[Execution], later: LaterExecutions) -> Overshoots:
    """Return the overshoots of an operation with its fused activations, before ``later`` runs."""
    first = parts[0]
    opcode = first.instruction.opcode
    if first.unclipped is None or opcode == "splat":
        return {}
    value, low, high = _before_activation(first)
    for activation in parts[1:]:
        bounds = _requested_range(activation)
        low, high = (int(np.clip(v, *bounds)) for v in (low, high))
    asked = find_requested_sides(parts, find_following_clips(parts[-1], later))
    lower = "activation" if "low" in asked else "result"
    upper = "activation" if "high" in asked else "result"
    overshoots = {(lower, "low"): [low - value], (upper, "high"): [value - high]}
    if opcode in ASKED and len(parts) == 1 and not _clips_result(first):
        _add_clamped_input(first, overshoots)
    return overshoots


def _before_activation(done: Execution) -> tuple[Array, int, int]:
    """Return the values before any clip and the range to which the operation itself clips."""
    attributes = dict(done.instruction.attributes)
    kind = attributes.get("FusedActivation", "NONE")
    assert done.unclipped is not None
    lowest, highest = limits(done)
    if _clips_result(done):
        return _rescale(done), *_range_on(done, done.operands[0])
    if kind not in CLIPPING:
        return done.unclipped, lowest, highest
    dest = done.operands[0]
    arguments: Any = attributes.get("FusedActivationArgs", ())
    low, high = dest.offset, highest
    if kind == "CLIP":
        low, high = (quantize_value(a, dest) for a in arguments)
    plain = {**attributes, "FusedActivation": "NONE", "FusedActivationArgs": ()}
    opcode, operands = done.instruction.opcode, done.operands
    value = execute_operation(opcode, operands, plain, done.numerics).unclipped[0]
    return value, low, high


def _requested_range(done: Execution) -> tuple[int, int]:
    """Return the input range that relu, clip or max with a constant asks for."""
    source, attributes = done.operands[1], done.instruction.attributes
    highest = limits(done)[1]
    if done.instruction.opcode == "relu":
        return source.offset, highest
    if done.instruction.opcode == "cpumaxsplat":
        return quantize_value(float(str(attributes["SplatValue"])), source), highest
    return _range_on(done, source)


def _range_on(done: Execution, grid: HostTensor) -> tuple[int, int]:
    """Return the bounds of ``clip`` on a tensor's grid."""
    bounds = (done.instruction.attributes[key] for key in ("Min", "Max"))
    low, high = (quantize_value(float(str(bound)), grid) for bound in bounds)
    return low, high


def _clips_result(done: Execution) -> bool:
    """Return whether ``clip`` limits on the result's grid (Interpreter) or the input's (libjit)."""
    by_floats = done.numerics == "glow-float" or done.result.dtype == np.int16
    return done.instruction.opcode == "clip" and by_floats


def _rescale(done: Execution) -> Array:
    return execute_operation("rescalequantized", done.operands, {}, done.numerics).unclipped[0]


def _add_clamped_input(done: Execution, overshoots: Overshoots) -> None:
    """Add the overshoots of the input, which an activation that is not fused clamps first."""
    low, high = _requested_range(done)
    source = done.operands[1].values.astype(np.int64)
    for side, over in (("low", low - source), ("high", source - high)):
        overshoots.setdefault(("activation", side), []).append(over)


def check_overshoots(
    layer: LayerReport, parts: Sequence[Execution], later: LaterExecutions
) -> None:
    """Assert that the result and activation stages in the report equal the oracle's for Glow."""
    if parts[0].numerics not in GLOW:
        return
    reported = {
        (s.stage, s.side): (s.count, s.worst, s.first, s.channels)
        for s in layer.saturation
        if s.stage in ("result", "activation")
    }
    assert reported == summarize_overshoots(compute_overshoots(parts, later)), layer.name
