"""Test that rows of the opcode table are consistent."""

from __future__ import annotations

import numpy as np
import pytest

from nmpsim.lir.opcode import OpcodeKind
from nmpsim.lir.opcodes import IN, OPCODES, Opcode

OPERANDS = {
    OpcodeKind.CONVOLUTION: ("Dest", "Src", "Filter", "Bias"),
    OpcodeKind.FULLY_CONNECTED: ("Dest", "Src", "Weights", "Bias"),
    OpcodeKind.PRODUCT: ("Dest", "LHS", "RHS"),
    OpcodeKind.BATCHED_ADD: ("Dest", "Batch", "Slice"),
    OpcodeKind.MAX_POOL: ("Dest", "Src"),
    OpcodeKind.AVERAGE_POOL: ("Dest", "Src"),
    OpcodeKind.PAIR: ("Dest", "LHS", "RHS"),
    OpcodeKind.CLIP: ("Dest", "Src"),
    OpcodeKind.RESCALE: ("Dest", "Src"),
    OpcodeKind.LOOK_UP: ("Dest", "Src", "Mapping"),
    OpcodeKind.FILL: ("Dest",),
    OpcodeKind.MOVE: ("Dest", "Src"),
    OpcodeKind.CONVERSION: ("Dest", "Src"),
    OpcodeKind.FUNCTION: ("Dest", "Src"),
}
"""First operands, or all operands, of each kind."""
ROWS = [pytest.param(row, id=name) for name, row in OPCODES.items()]


@pytest.mark.parametrize("row", ROWS)
def test_operands_of_a_type_have_the_same_positions(row: Opcode) -> None:
    names = tuple(role.name for role in row.operands)
    expected = OPERANDS.get(row.kind, names)
    assert names[: len(expected)] == expected
    own = {name for role in row.operands for name in role.scales or ()}
    assert own == set(names[len(expected) :])


@pytest.mark.parametrize("row", ROWS)
def test_a_formula_takes_read_operands_and_attributes(row: Opcode) -> None:
    """But for those that say how integers are rounded, which Glow does not have."""
    if row.formula is None:
        return
    sources = [np.array([0.25, 0.5]) for role in row.operands if role.kind == IN]
    if row.name.startswith(("elementbitwise", "modulo")):
        sources = [np.array([1, 2]) for _ in sources]
    numbers = [1 for attribute in row.attributes if not attribute.is_extension]
    assert np.shape(row.formula(*sources, *numbers)) == (2,)


@pytest.mark.parametrize("row", ROWS)
def test_limits_agree_with_the_formula(row: Opcode) -> None:
    assert (row.limits is not None) == (row.kind is OpcodeKind.CLIP)
    if row.limits is None or row.formula is None:
        return
    given = {a.name: float(-2 + 5 * place) for place, a in enumerate(row.attributes)}
    low, high = (given.get(str(limit), limit) for limit in row.limits)
    x = np.linspace(-9, 9, 37)
    expected = np.minimum(np.maximum(x, low), np.inf if high is None else high)
    np.testing.assert_array_equal(row.formula(x, *given.values()), expected)


def test_some_operations_keep_the_scale() -> None:
    keep = {name for name, row in OPCODES.items() if row.keeps_scale}
    assert keep > {"copy", "transpose", "inserttensor", "extracttensor", "maxpool", "cpumaxsplat"}
    assert not keep & {"relu", "avgpool", "elementadd", "rescalequantized", "touch"}
