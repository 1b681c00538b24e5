"""What a layer on the host takes where the device file says so; docs/timing.md has the formula."""

from __future__ import annotations

import math

from nmpsim.bundle.metadata import ProgramStep
from nmpsim.config import DeviceConfig
from nmpsim.lir.opcode import WEIGHTED, Kind
from nmpsim.lir.opcodes import OPCODES

_SIMPLE = frozenset(
    {
        Kind.NO_WORK,
        Kind.BATCHED_ADD,
        Kind.PAIR,
        Kind.CLIP,
        Kind.RESCALE,
        Kind.LOOK_UP,
        Kind.FILL,
        Kind.MOVE,
        Kind.CONVERSION,
    }
)
"""Kinds with one short operation for each result."""


def host_cycles(step: ProgramStep, config: DeviceConfig) -> int:
    """Cycles of the device that a step of the host takes; 0 if the device file counts none."""
    opcode = OPCODES.get(step.opcode or "")
    kind = Kind.HOST if opcode is None else opcode.kind
    shapes = [operand.tensor.shape for operand in step.operands]
    results = math.prod(shapes[0])
    if kind in WEIGHTED:
        weights_of_a_channel = math.prod(shapes[2]) // max(shapes[0][-1], 1)
        taken = results * weights_of_a_channel * config.host_kilo_mac_cycles
    elif kind is Kind.PRODUCT:
        taken = results * shapes[1][-1] * config.host_kilo_mac_cycles
    elif kind in _SIMPLE:
        taken = results * config.host_kilo_element_cycles
    else:
        taken = results * config.host_kilo_function_cycles
    return config.host_operation_cycles + -(-taken // 1000)
