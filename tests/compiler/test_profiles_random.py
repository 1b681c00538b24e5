"""Random programs in every profile, Int8 and Int16, against oracles that know scales alone."""

from __future__ import annotations

from itertools import product

import pytest
from compiled_runs import check_program
from hypothesis import given
from program_writer import Program, Size, Step, sizes
from random_arithmetic import (
    avg_pool,
    batched_add,
    binary,
    convolution,
    fully_connected,
    max_pool,
    product_of_activations,
    splat,
    unary,
)
from random_programs import single_operations
from tiers import examples, pairwise

from nmpsim.compiler.numerics import PROFILES

STEPS: dict[str, tuple[Step, ...]] = {
    "convolution": (convolution,),
    "product": (fully_connected, product_of_activations),
    "pool": (max_pool, avg_pool),
    "elements": (binary, batched_add, unary, splat),
}


@pytest.mark.parametrize(
    ("numerics", "elem", "kind"), pairwise(product(PROFILES, ("i8", "i16"), STEPS))
)
def test_random_operations_of_each_profile_are_exact(numerics: str, elem: str, kind: str) -> None:
    @examples(12)
    @given(single_operations(STEPS[kind], elem, numerics), sizes())
    def check(program: Program, size: Size) -> None:
        check_program(program, size.config)

    check()
