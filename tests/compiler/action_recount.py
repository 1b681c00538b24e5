"""Recount of the actions of a run from its trace, for comparison with the counters of layers."""

from __future__ import annotations

import math
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from nmpsim.analysis.tensor_instructions import decode_tensor_instruction
from nmpsim.bundle import Bundle
from nmpsim.config import DeviceConfig
from nmpsim.isa.table import Unit
from nmpsim.report.data import RunReport

Words = Mapping[str, int]
_DEFAULTS = Path(__file__).parents[2] / "nmpsim" / "nmp.toml"
CHANNEL_RECORD, SCALE_RECORD = 16, 28
COMPONENTS = {
    "mac": ("mac_int8", "mac_int16"),
    "vector": ("vector_element",),
    "scratchpad": ("mac_scratchpad_byte", "vector_scratchpad_byte", "dma_scratchpad_byte"),
    "dram": (
        *("dram_read_byte", "dram_written_byte", "dram_activation", "dram_refresh"),
        "dram_cycle",
    ),
    "control": ("control_instruction", "tensor_instruction"),
    "leakage": ("core_cycle",),
}


def _size(d: Words) -> int:
    return 2 if d["element"] else 1


def _pixels(d: Words) -> int:
    return d["out_h"] * d["out_w"]


def _taps(d: Words) -> int:
    return d["kernel_h"] * d["kernel_w"]


def _result(d: Words, results: int) -> int:
    """Bytes of the results and partial sums of an instruction of the MAC array."""
    reads, writes = {0: (0, 0), 1: (0, 1), 2: (1, 1), 3: (1, 0)}[d["part"]]
    stored = 0 if d["part"] in (1, 2) else results * _size(d)
    return stored + 4 * results * _size(d) * (reads + writes)


def _parameters(d: Words, channels: int) -> int:
    return channels * (CHANNEL_RECORD + (SCALE_RECORD if d["scales"] else 0))


def _conv(d: Words) -> dict[str, int]:
    inputs = _pixels(d) * _taps(d) * d["groups"] * d["in_channels"] * _size(d)
    row = -(-d["kernel_w"] * d["in_channels"] * _size(d) // 4) * 4
    weights = -(-d["out_channels"] // 16) * 16 * d["kernel_h"] * row
    nbytes = inputs + weights + _result(d, _pixels(d) * d["out_channels"])
    macs = _pixels(d) * _taps(d) * d["in_channels"] * d["out_channels"]
    return _mac(d, macs, nbytes + _parameters(d, d["out_channels"]))


def _dwconv(d: Words) -> dict[str, int]:
    channels = d["channels_count"]
    macs = _pixels(d) * _taps(d) * channels
    nbytes = (macs + _taps(d) * channels + _pixels(d) * channels) * _size(d)
    return _mac(d, macs, nbytes + _parameters(d, channels))


def _gemm(d: Words) -> dict[str, int]:
    nbytes = (d["rows"] + d["columns"]) * d["inner"] * _size(d)
    nbytes += _result(d, d["rows"] * d["columns"])
    return _mac(d, d["rows"] * d["inner"] * d["columns"], nbytes)


def _mac(d: Words, macs: int, nbytes: int) -> dict[str, int]:
    return {"mac_int16" if d["element"] else "mac_int8": macs, "mac_scratchpad_byte": nbytes}


def _vector(elements: int, nbytes: int) -> dict[str, int]:
    return {"vector_element": elements, "vector_scratchpad_byte": nbytes}


def _pool(d: Words) -> dict[str, int]:
    moved = (d["in_h"] * d["in_w"] + _pixels(d)) * d["channels"] * _size(d)
    return _vector(_pixels(d) * _taps(d) * d["channels"], moved)


def _eltwise(d: Words) -> dict[str, int]:
    elements = d["rows"] * d["columns"]
    return _vector(elements, elements * (2 * _size(d) + (4 if d["rhs_kind"] else _size(d))))


def _transpose(d: Words) -> dict[str, int]:
    elements = math.prod(d[f"size_{axis}"] for axis in range(4))
    return _vector(elements, 2 * elements * d["element_bytes"])


def _load(d: Words) -> dict[str, int]:
    wide = d["pad_x_before"] + d["count_x"] + d["pad_x_after"]
    high = d["pad_y_before"] + d["count_y"] + d["pad_y_after"]
    return {"dma_scratchpad_byte": wide * high * d["run_bytes"]}


_RECOUNTS: Mapping[str, Callable[[Words], dict[str, int]]] = {
    "conv": _conv,
    "dwconv": _dwconv,
    "gemm": _gemm,
    "maxpool": _pool,
    "avgpool": _pool,
    "eltwise": _eltwise,
    "rescale": lambda d: _vector(d["count"], 2 * d["count"] * _size(d)),
    "lut": lambda d: _vector(d["count"], 2 * d["count"] + 256),
    "fill": lambda d: _vector(d["count"], d["count"] * _size(d)),
    "transpose": _transpose,
    "load": _load,
    "store": lambda d: {"dma_scratchpad_byte": d["count_x"] * d["count_y"] * d["run_bytes"]},
}


@lru_cache
def _read_default_energies() -> Mapping[str, Mapping[str, float]]:
    table: dict[str, Any] = tomllib.loads(_DEFAULTS.read_text(encoding="utf-8"))["energy"]
    return table


def check_actions(
    report: RunReport, works: Sequence[Any], bundle: Bundle, config: DeviceConfig
) -> None:
    """Assert that counted actions equal a recount from the trace, and energy their sum.

    Instructions of control cores are not part of the trace.
    """
    found: list[Counter[str]] = [Counter() for _ in range(len(report.layers) + 1)]
    for work in works:
        for entry in work:
            actions = found[entry["layer"]]
            if entry["is_grant"]:
                is_store = entry["unit"] == Unit.STORE
                name = "dram_written_byte" if is_store else "dram_read_byte"
                actions[name] += int(entry["bytes"])
                continue
            pc, descriptor = int(entry["pc"]), int(entry["descriptor"])
            instruction = decode_tensor_instruction(bundle, pc, descriptor)
            assert instruction is not None
            actions.update(_RECOUNTS[instruction.name](instruction.words))
            actions["tensor_instruction"] += 1
    for layer, actions in zip(report.layers, found, strict=False):
        actions["core_cycle"] = config.cores_count * layer.cycles
        actions["dram_cycle"] = config.dram_channels * layer.cycles
        actions["dram_activation"] = layer.row_misses
        actions["control_instruction"] = int(layer.actions["control_instruction"])
        actions["dram_refresh"] = layer.actions["dram_refresh"]
        counted = Counter({name: count for name, count in layer.actions.items() if count})
        assert counted == Counter({name: n for name, n in actions.items() if n}), layer.name
        check_energy(layer.energy, layer.actions)


def check_energy(energy: Mapping[str, Any], actions: Mapping[str, float]) -> None:
    """Assert that the energy of a layer is that of the default device file within 1 %."""
    table = _read_default_energies()
    for component, names in COMPONENTS.items():
        for end in ("low", "value", "high"):
            expected = sum(actions[name] * table[name][end] for name in names)
            assert getattr(energy[component], end) == pytest.approx(expected, rel=0.01)
