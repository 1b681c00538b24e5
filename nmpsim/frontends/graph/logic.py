"""Nodes that compare, decide and choose, and tensors that are repeated to a shape."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from nmpsim.frontends.graph.lowering import PLAIN
from nmpsim.frontends.graph.operation import Made, Operation, check_elems
from nmpsim.frontends.imported_model import UnsupportedError

Lower = Callable[[Operation], Made]
_BOOL = "bool"
_NUMBERS = ("float", "index32", "index64")
"""Kinds of elements that are compared as they are."""


def truth(opcode: str, *elems: str, is_turned: bool = False) -> Lower:
    """Of tensors of these kinds, any of them broadcast; ``is_turned`` takes the second first."""

    def lower(op: Operation) -> Made:
        sides = op.alike()
        check_elems(sides, elems or _NUMBERS)
        return op.emit(opcode, *(sides[::-1] if is_turned else sides), kind=_BOOL)

    return lower


def where(op: Operation) -> Made:
    """The second input where the first holds, else the third; any of them broadcast."""
    condition, *sides = op.alike()
    check_elems([condition], (_BOOL,))
    check_elems(sides, _NUMBERS)
    return op.emit("elementselect", condition, *sides, kind=sides[0].type)


def expand(op: Operation) -> Made:
    """Repeated along dimensions of 1, or along new ones."""
    own, given = op.shape(), op.integers(1)
    try:
        shape = tuple(int(dim) for dim in np.broadcast_shapes(own, tuple(given)))
    except ValueError:
        raise UnsupportedError(f"{list(own)} expanded to {given}") from None
    if math.prod(shape) < 1:
        raise UnsupportedError(f"a shape {list(shape)}")
    op.layout = op.graph.layout(op.names[0]) if len(shape) == len(own) else PLAIN
    return op.emit("copy", op.broadcast(0, shape))
