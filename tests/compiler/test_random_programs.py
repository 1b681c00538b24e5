"""Random programs on random devices against the oracle."""

from __future__ import annotations

from campaigns import examples
from compiled_runs import check_program
from hypothesis import given
from random_programs import (
    Program,
    Size,
    avg_pool,
    batched_add,
    binary,
    chains,
    convolution,
    deep_products,
    fully_connected,
    look_up,
    max_pool,
    moves,
    product_of_activations,
    single_operations,
    sizes,
    splat,
    unary,
)


@examples(120)
@given(single_operations((convolution,)), sizes())
def test_convolutions(program: Program, size: Size) -> None:
    check_program(program, size.config)


@examples(40)
@given(single_operations((fully_connected, product_of_activations)), sizes())
def test_products(program: Program, size: Size) -> None:
    check_program(program, size.config)


@examples(20)
@given(deep_products(), sizes())
def test_products_of_many_inputs(program: Program, size: Size) -> None:
    check_program(program, size.config)


@examples(60)
@given(single_operations((max_pool, avg_pool)), sizes())
def test_pools(program: Program, size: Size) -> None:
    check_program(program, size.config)


@examples(60)
@given(single_operations((binary, batched_add, unary, look_up, splat)), sizes())
def test_element_by_element(program: Program, size: Size) -> None:
    check_program(program, size.config)


@examples(60)
@given(moves(), sizes())
def test_moves(program: Program, size: Size) -> None:
    check_program(program, size.config)


@examples(120)
@given(chains(), sizes())
def test_chains(program: Program, size: Size) -> None:
    check_program(program, size.config)
