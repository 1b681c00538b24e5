"""Random programs on random devices against the oracle.

``NMPSIM_CAMPAIGN=50`` runs fifty times as many examples as usual.
"""

from __future__ import annotations

import os

from compiled_runs import check_program
from hypothesis import HealthCheck, given, settings
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

TIMES = int(os.environ.get("NMPSIM_CAMPAIGN", "1"))


def examples(count: int) -> settings:
    return settings(
        max_examples=count * TIMES,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


@examples(60)
@given(single_operations((convolution,)), sizes())
def test_convolutions(program: Program, size: Size) -> None:
    check_program(program, size.config)


@examples(20)
@given(single_operations((fully_connected, product_of_activations)), sizes())
def test_products(program: Program, size: Size) -> None:
    check_program(program, size.config)


@examples(12)
@given(deep_products(), sizes())
def test_products_of_many_inputs(program: Program, size: Size) -> None:
    check_program(program, size.config)


@examples(30)
@given(single_operations((max_pool, avg_pool)), sizes())
def test_pools(program: Program, size: Size) -> None:
    check_program(program, size.config)


@examples(30)
@given(single_operations((binary, batched_add, unary, look_up, splat)), sizes())
def test_element_by_element(program: Program, size: Size) -> None:
    check_program(program, size.config)


@examples(30)
@given(moves(), sizes())
def test_moves(program: Program, size: Size) -> None:
    check_program(program, size.config)


@examples(60)
@given(chains(), sizes())
def test_chains(program: Program, size: Size) -> None:
    check_program(program, size.config)
