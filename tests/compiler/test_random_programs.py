"""Random programs on random devices against the oracle."""

from __future__ import annotations

import pytest
from compiled_runs import check_program
from hypothesis import given
from hypothesis import strategies as st
from program_writer import Program, Size, Step, sizes
from random_arithmetic import (
    ARITHMETIC,
    avg_pool,
    batched_add,
    binary,
    convolution,
    fully_connected,
    look_up,
    max_pool,
    product_of_activations,
    splat,
    unary,
)
from random_programs import chains, deep_products, large_operations, moves, single_operations
from tiers import examples


@examples(120)
@given(single_operations((convolution,)), sizes())
def test_random_convolutions_are_exact(program: Program, size: Size) -> None:
    check_program(program, size.config)


@examples(40)
@given(single_operations((fully_connected, product_of_activations)), sizes())
def test_random_products_are_exact(program: Program, size: Size) -> None:
    check_program(program, size.config)


@examples(20)
@given(deep_products(), sizes())
def test_random_products_of_many_inputs_are_exact(program: Program, size: Size) -> None:
    check_program(program, size.config)


@examples(60)
@given(single_operations((max_pool, avg_pool)), sizes())
def test_random_pools_are_exact(program: Program, size: Size) -> None:
    check_program(program, size.config)


@examples(60)
@given(single_operations((binary, batched_add, unary, look_up, splat)), sizes())
def test_random_elementwise_operations_are_exact(program: Program, size: Size) -> None:
    check_program(program, size.config)


@examples(60)
@given(moves(), sizes())
def test_random_moves_are_exact(program: Program, size: Size) -> None:
    check_program(program, size.config)


@pytest.mark.parametrize("step", sorted(set(ARITHMETIC), key=lambda s: s.__name__))
def test_many_tiles_per_core_are_exact(step: Step) -> None:
    """Where buffers are used in turn, three tiles tell a wrong turn from a right one."""

    @examples(10)
    @given(large_operations(step), st.sampled_from((1, 2)), st.sampled_from((4096, 8192)))
    def check(program: Program, cores: int, scratchpad_bytes: int) -> None:
        check_program(program, Size(cores, scratchpad_bytes).config)

    check()


@examples(120)
@given(chains(), sizes())
def test_random_chains_are_exact(program: Program, size: Size) -> None:
    check_program(program, size.config)
