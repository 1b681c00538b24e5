"""A layer reports the same saturation on the host as on the device."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest
from lir_draft import Draft, int8, random_values
from small_programs import SMALL

from nmpsim.bundle import bundle_from_bytes
from nmpsim.compiler import driver
from nmpsim.compiler.work import Operation
from nmpsim.core.device import Device
from nmpsim.report.data import Saturation

SHAPE = (1, 4, 6, 5)
POOL: dict[str, Any] = {"Kernels": (3, 3), "Strides": (1, 1), "Pads": (1, 1, 1, 1)}


def two_operands(opcode: str, scale: float) -> Draft:
    draft = Draft()
    sides = (draft.input(int8(SHAPE, 0.5, 3)), draft.input(int8(SHAPE, 0.25, -7)))
    draft.emit(opcode, draft.output(int8(SHAPE, scale, -9)), *sides)
    return draft


def one_operand(opcode: str, scale: float, **attributes: Any) -> Draft:
    draft = Draft()
    draft.emit(
        opcode, draft.output(int8(SHAPE, scale, -9)), draft.input(int8(SHAPE, 0.5, 3)), **attributes
    )
    return draft


def same_type(opcode: str, scale: float, **attributes: Any) -> Draft:
    draft, kind = Draft(), int8(SHAPE, scale, -9)
    draft.emit(opcode, draft.output(kind), draft.input(kind), **attributes)
    return draft


def matmul(scale: float) -> Draft:
    draft = Draft()
    sides = (draft.input(int8((6, 40), 0.5, 3)), draft.input(int8((40, 5), 0.25, -7)))
    draft.emit("matmul", draft.output(int8((6, 5), scale, -9)), *sides)
    return draft


def batched_add(scale: float) -> Draft:
    draft = Draft()
    batch = draft.input(int8((3, 4, 5), 0.5, 3))
    draft.emit(
        "batchedadd", draft.output(int8((3, 4, 5), scale, -9)), batch, draft.input(int8((4, 5)))
    )
    return draft


PROGRAMS = {
    **{
        opcode: (lambda scale, opcode=opcode: two_operands(opcode, scale))
        for opcode in ("elementadd", "elementsub", "elementmul", "elementmax", "elementmin")
    },
    "relu": lambda scale: one_operand("relu", scale),
    "clip": lambda scale: one_operand("clip", scale, Min=-6.0, Max=20.0),
    "cpumaxsplat": lambda scale: same_type("cpumaxsplat", scale, SplatValue=-2 * scale),
    "clip within": lambda scale: one_operand("clip", scale, Min=-20 * scale, Max=136 * scale),
    "leakyrelu": lambda scale: one_operand("leakyrelu", scale, Alpha=0.3),
    "rescalequantized": lambda scale: one_operand("rescalequantized", scale),
    "avgpool": lambda scale: one_operand("avgpool", scale, **POOL, CountIncludePads=0),
    "avgpool with padding": lambda scale: one_operand("avgpool", scale, **POOL, CountIncludePads=1),
    "matmul": matmul,
    "batchedadd": batched_add,
}


def run(draft: Draft, numerics: str) -> tuple[str, tuple[Saturation, ...], Any]:
    bundle = driver.compile_module(draft.module(), SMALL, numerics=numerics)
    rng = np.random.default_rng(4)
    inputs = {name: random_values(rng, kind) for name, kind in draft.inputs.items()}
    report = Device(SMALL, "reference").run(bundle_from_bytes(bundle), inputs)
    (layer,) = report.layers
    (output,) = report.outputs.values()
    return layer.placement, layer.saturation, output


@pytest.mark.parametrize("scale", [3e-10, 4e-6, 0.02])
@pytest.mark.parametrize("numerics", ["glow-int", "glow-float", "nmp"])
@pytest.mark.parametrize("opcode", PROGRAMS)
def test_host_and_device_agree(
    opcode: str, numerics: str, scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft = PROGRAMS[opcode](scale)
    placement, expected, values = run(draft, numerics)
    assert placement == "device"

    def place_on_host(operations: tuple[Operation, ...], config: Any) -> tuple[Operation, ...]:
        return tuple(attrs.evolve(op, host_reason="forced") for op in operations)

    monkeypatch.setattr(driver, "place", place_on_host)
    placement, found, other = run(draft, numerics)
    assert placement == "host"
    np.testing.assert_array_equal(other, values)
    assert found == expected
