"""Host steps of a bundle whose metadata nobody checked when they were written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

import nmpsim
from nmpsim.bundle import Bundle, parse_bundle
from nmpsim.diagnostics import UserError
from nmpsim.isa import words
from nmpsim.kernels import rounding

DIGITS = Path(__file__).parents[2] / "programs" / "digits"


def with_last_step(**changes: Any) -> Bundle:
    compiled = nmpsim.compile(DIGITS / "digits.lir.txt", DIGITS / "digits.npz")
    bundle = parse_bundle(compiled.image)
    *steps, last = bundle.metadata.steps
    assert last.opcode == "softmax"
    metadata = attrs.evolve(bundle.metadata, steps=(*steps, attrs.evolve(last, **changes)))
    return attrs.evolve(bundle, metadata=metadata)


@pytest.mark.parametrize(
    "changes",
    [
        {"opcode": "transpose", "attributes": {"Shuffle": (9, 0)}},
        {"opcode": "transpose", "attributes": {"Shuffle": "x"}},
        {"opcode": "transpose", "attributes": {"Shuffle": None}},
        {"opcode": "inserttensor", "attributes": {"Offsets": (5,), "Count": 1, "Axis": 7}},
        {"opcode": "nonsense"},
        {"operands": ()},
    ],
)
def test_a_step_that_contradicts_the_lir_is_an_error(changes: dict[str, Any]) -> None:
    image = np.load(DIGITS / "images" / "7.npy")

    with pytest.raises(UserError) as error:
        nmpsim.Device().run(with_last_step(**changes), {"data": image})

    assert [d.code for d in error.value.diagnostics] == ["BUN001"]


def test_kernels_number_operations_like_the_table() -> None:
    numbers = [name for name in vars(rounding) if name.startswith("OP_")]
    assert numbers
    for name in numbers:
        assert getattr(rounding, name) == getattr(words, name)
