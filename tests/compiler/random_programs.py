"""Hypothesis strategies for valid LIR programs and for devices to run them on.

Structure is drawn, so that it shrinks; the elements of tensors come from a drawn seed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from lir_draft import Ref, random_values, tensor_type
from program_writer import Program, Step, Writer
from random_arithmetic import (
    ARITHMETIC,
    avg_pool,
    binary,
    convolution,
    fully_connected,
    max_pool,
    product_of_activations,
    unary,
)
from random_moves import MOVES

from nmpsim.compiler.numerics import PROFILES

CHANNELS = (1, 2, 3, 4, 8, 16, 17, 33)
ELEMS = ("i8", "i16", "i32", "float", "float16", "index64", "bool")

IMAGE_STEPS = (convolution, convolution, convolution, max_pool, avg_pool, binary, fully_connected)


def write(w: Writer, first: Ref, steps: tuple[Step, ...], length: int) -> Program:
    current = first
    w.seen.append(first)
    for index in range(length):
        step = w.draw(st.sampled_from(steps))
        w.draft.is_last = index == length - 1
        current = step(w, current)
        w.seen.append(current)
    inputs = {name: random_values(w.rng, kind) for name, kind in w.draft.inputs.items()}
    return Program(w.draft.module(), inputs, w.numerics)


@st.composite
def single_operations(
    draw: Any,
    steps: tuple[Step, ...] = ARITHMETIC,
    elem: str = "i8",
    numerics: str = "glow-int",
) -> Program:
    """Draw a program with one operation on an image."""
    w = Writer(draw, elem, numerics)
    return write(w, w.draft.input(w.narrow_type(_image(w))), steps, 1)


@st.composite
def large_operations(draw: Any, step: Step, elem: str = "i8") -> Program:
    """Draw a program with one operation on a large image."""
    w = Writer(draw, elem)
    shape = (w.number(1, 3), w.number(8, 14), w.number(8, 14), w.pick(8, 17, 33, 40))
    return write(w, w.draft.input(w.narrow_type(shape)), (step,), 1)


@st.composite
def chains(draw: Any, elem: str = "i8", numerics: str = "glow-int") -> Program:
    """Draw a program with two to five operations of any kind."""
    w = Writer(draw, elem, numerics)
    first = w.draft.input(w.narrow_type(_image(w)))
    return write(w, first, (*ARITHMETIC, *MOVES, unary, unary), w.number(2, 5))


@st.composite
def image_networks(draw: st.DrawFn) -> Program:
    """Draw a network of two to six layers on one image."""
    elem = draw(st.sampled_from(("i8", "i8", "i8", "i16")))
    w = Writer(draw, elem, draw(st.sampled_from(sorted(PROFILES))))
    shape = (1, w.number(4, 20), w.number(1, 12), w.pick(1, 3, 8, 16, 17, 33, 48))
    return write(w, w.draft.input(w.narrow_type(shape)), IMAGE_STEPS, w.number(2, 6))


@st.composite
def deep_products(draw: Any) -> Program:
    """Draw a fully connected layer or matrix product over 500 to 6000 inputs."""
    w = Writer(draw)
    shape = (w.number(1, 4), w.number(500, 6000))
    first = w.draft.input(w.narrow_type(shape, 0.02))
    return write(w, first, (fully_connected, fully_connected, product_of_activations), 1)


@st.composite
def moves(draw: Any) -> Program:
    """Draw a program with one to three moves of any element type in one to six dimensions."""
    w = Writer(draw)
    elem = w.pick(*ELEMS)
    shape = [w.number(1, 7) for _ in range(w.number(1, 6))]
    long = w.number(0, len(shape) - 1)
    shape[long] *= min(w.pick(1, 1, 8, 60, 1000), max(40_000 // int(np.prod(shape)), 1))
    first = w.draft.input(tensor_type(elem, tuple(shape), w.scale(), w.offset()))
    return write(w, first, MOVES, w.number(1, 3))


def _image(w: Writer) -> tuple[int, ...]:
    return (w.pick(1, 1, 2, 3), w.number(1, 14), w.number(1, 14), w.pick(*CHANNELS))
