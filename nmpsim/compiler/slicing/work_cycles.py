"""Cycles of a planned tensor instruction on its unit, by the device's own formulas."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from nmpsim.compiler.slicing.plan import Command
from nmpsim.isa.table import INSTRUCTIONS, Unit
from nmpsim.isa.total import total
from nmpsim.timing import Costs
from nmpsim.timing.compute import (
    conv_cycles,
    depthwise_cycles,
    gemm_cycles,
    pool_cycles,
    transpose_cycles,
    vector_cycles,
)

Words = Mapping[str, int]


def _pixels(d: Words) -> int:
    return d["out_h"] * d["out_w"]


def _taps(d: Words) -> int:
    return d["kernel_h"] * d["kernel_w"]


def _conv(d: Words, costs: Costs) -> int:
    return conv_cycles(
        _pixels(d),
        d["kernel_h"],
        d["kernel_w"],
        d["in_channels"],
        d["out_channels"],
        d["groups"],
        d["element"],
        costs,
    )


def _depthwise(d: Words, costs: Costs) -> int:
    return depthwise_cycles(_pixels(d), _taps(d), d["channels_count"], d["element"], costs)


def _pool(d: Words, costs: Costs) -> int:
    return pool_cycles(_pixels(d), _taps(d), d["channels"], d["element"], costs)


def _flat(d: Words, costs: Costs) -> int:
    return vector_cycles(1, d["count"], d.get("element", 0), costs)


def _transpose(d: Words, costs: Costs) -> int:
    return transpose_cycles(math.prod(d[f"size_{i}"] for i in range(4)), costs)


_CYCLES: dict[str, Callable[[Words, Costs], int]] = total(
    f"{__name__}._CYCLES",
    {
        "nmp.conv": _conv,
        "nmp.dwconv": _depthwise,
        "nmp.gemm": lambda d, costs: gemm_cycles(
            d["rows"], d["inner"], d["columns"], d["element"], costs
        ),
        "nmp.maxpool": _pool,
        "nmp.avgpool": _pool,
        "nmp.eltwise": lambda d, costs: vector_cycles(d["rows"], d["columns"], d["element"], costs),
        "nmp.rescale": _flat,
        "nmp.lut": _flat,
        "nmp.fill": _flat,
        "nmp.transpose": _transpose,
    },
    (i.mnemonic for i in INSTRUCTIONS if i.unit in (Unit.MAC, Unit.VECTOR)),
)
"""Every instruction of the MAC array and of the vector unit."""


def work_cycles(command: Command, costs: Costs) -> int:
    """Cycles that an instruction which is no transfer keeps its unit busy."""
    return _CYCLES[command.mnemonic](command.words, costs)
