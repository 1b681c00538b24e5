"""Host operations come from a bundle's metadata: what does not fit is an error before it runs."""

from __future__ import annotations

import random
from typing import Any

import attrs
import numpy as np
import pytest
from cases import CASES
from one_instruction import DEVICE, OneInstruction, plain_type

import nmpsim
from nmpsim.bundle import Bundle, HostOperand, ProgramStep
from nmpsim.diagnostics import UserError
from nmpsim.lir.nodes import TensorType
from nmpsim.lir.opcodes import OPCODES

F = np.float32
NUMBERS = [-(2**63), -1, 0, 1, 7, 2**31, 2**62, 0.5, float("inf"), float("nan"), "word", None, True]


def host_step(bundle: Bundle, opcode: str) -> ProgramStep:
    (step,) = [one for one in bundle.metadata.steps if one.opcode == opcode]
    return step


def with_step(bundle: Bundle, old: ProgramStep, new: ProgramStep) -> Bundle:
    steps = tuple(new if one is old else one for one in bundle.metadata.steps)
    return attrs.evolve(bundle, metadata=attrs.evolve(bundle.metadata, steps=steps))


def find_error_codes(bundle: Bundle, inputs: dict[str, Any]) -> set[str]:
    """Return the error codes with which a run ends, or an empty set if it succeeds."""
    try:
        nmpsim.Device(DEVICE, engine="reference").run(bundle, inputs)
    except UserError as error:
        return {one.code for one in error.diagnostics}
    return set()


def change_step(rng: random.Random, step: ProgramStep) -> ProgramStep:
    """Return the step with one attribute, or the shape and role of one operand, changed."""
    names = sorted(step.attributes)
    if names and rng.random() < 0.6:
        name = rng.choice(names)
        value: Any = rng.choice(NUMBERS)
        old = step.attributes[name]
        if isinstance(old, tuple) and rng.random() < 0.8:
            items = list(old)
            if items and rng.random() < 0.7:
                items[rng.randrange(len(items))] = value
            else:
                items = items[:-1] if rng.random() < 0.5 else [*items, value]
            value = tuple(items)
        return attrs.evolve(step, attributes={**step.attributes, name: value})
    operands = list(step.operands)
    index = rng.randrange(len(operands))
    tensor = operands[index].tensor
    shape = list(tensor.shape)
    if shape and rng.random() < 0.6:  # never larger: the bundle's own check is not asked here
        at = rng.randrange(len(shape))
        shape[at] = rng.randrange(0, shape[at] + 1)
    elif shape:
        shape = rng.sample(shape, len(shape)) if rng.random() < 0.5 else shape[1:]
    role = rng.choice(["in", "out", "inout"]) if rng.random() < 0.1 else operands[index].role
    operands[index] = HostOperand(role, attrs.evolve(tensor, shape=tuple(shape)))
    return attrs.evolve(step, operands=tuple(operands))


@pytest.mark.parametrize("name", CASES)
def test_changed_steps_run_or_are_refused(name: str) -> None:
    case = CASES[name](np.random.default_rng([5, *name.encode()]))
    bundle = case.it.bundle()
    step = host_step(bundle, case.it.opcode)
    rng = random.Random(name)
    found = [
        find_error_codes(with_step(bundle, step, change_step(rng, step)), case.it.inputs())
        for _ in range(12)
    ]
    assert set().union(*found) <= {"BUN001", "HOST001", "MEM001"}


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"attributes": {}}, "the attribute BatchDims is missing"),
        ({"attributes": {"BatchDims": -1}}, "the attribute BatchDims is wrong: -1"),
        ({"attributes": {"BatchDims": 2}}, "BatchDims is not a dimension of Data: BatchDims 2"),
        ({"attributes": {"BatchDims": 1}}, "Dest has the wrong shape: <2 x 3>"),
        ({"opcode": "embedding"}, "unknown opcode: 'embedding'"),
        ({"opcode": "flip"}, "expected: @out Dest, @in Src"),
    ],
)
def test_unsuitable_steps_are_errors(changes: dict[str, Any], found: str) -> None:
    values = {"Data": np.zeros((4, 3), F), "Indices": np.array([3, 0])}
    types = (TensorType("float", (2, 3)), *(plain_type(v) for v in values.values()))
    it = OneInstruction("gather", types, values, {"BatchDims": 0})
    bundle = it.bundle()
    step = host_step(bundle, "gather")
    with pytest.raises(UserError, match="BUN001") as caught:
        nmpsim.Device(DEVICE, engine="reference").run(
            with_step(bundle, step, attrs.evolve(step, **changes)), it.inputs()
        )
    assert found in str(caught.value)


def test_every_host_operation_is_checked_by_the_rules_of_the_lir() -> None:
    assert {name for name, row in OPCODES.items() if row.signatures and not row.rules} == {
        "splat",
        "touch",
    }
