"""Translation of PyTorch functions of each value to several ONNX operators."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import attrs
import numpy as np

from nmpsim.frontends.graph.operation import bind_attributes
from nmpsim.frontends.torch.graph_builder import TorchGraphBuilder, Translation
from nmpsim.frontends.torch.recording import RecordedTensor


def add_number(builder: TorchGraphBuilder, name: str, value: float) -> str:
    """Add a float32 constant and return its name."""
    return builder.add_constant(name, np.array(value, np.float32))


_Writer = Callable[..., str]
"""Adds an operator on tensor names and numbers, and returns the name of its result."""


def _write_operator(builder: TorchGraphBuilder, op: str, *operands: str | float) -> str:
    names = [
        one if isinstance(one, str) else add_number(builder, "number", one) for one in operands
    ]
    return builder.add_node(op, names, builder.make_unique(op.lower()))


def _formula(write: Callable[..., str]) -> Translation:
    """Return the translation of a function of each value to several operators.

    ``write`` takes a :data:`_Writer`, the name of the operand, and arguments of the operation.
    """

    def translate(builder: TorchGraphBuilder, self: RecordedTensor) -> None:
        given = bind_attributes(write, builder.arguments)
        write(functools.partial(_write_operator, builder), builder.get_name(self), **given)
        builder.steps[-1] = attrs.evolve(builder.steps[-1], outputs=(builder.get_first_output(),))

    return translate


def _write_gelu(write: _Writer, x: str, approximate: str = "none") -> str:
    """Add ``x * (1 + erf(x / sqrt(2))) / 2``, or its approximation by tanh."""
    if approximate == "tanh":
        cube = write("Mul", write("Mul", write("Mul", x, x), x), 0.044715)
        inner = write("Mul", write("Add", x, cube), math.sqrt(2 / math.pi))
        share = write("Tanh", inner)
    else:
        share = write("Erf", write("Mul", x, math.sqrt(0.5)))
    return write("Mul", write("Mul", x, write("Add", share, 1.0)), 0.5)


def _write_elu(
    write: _Writer, x: str, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0
) -> str:
    """Add ``scale * (max(x, 0) + alpha * (exp(input_scale * min(x, 0)) - 1))``."""
    below = write("Mul", write("Neg", write("Relu", write("Neg", x))), input_scale)
    bent = write("Mul", write("Sub", write("Exp", below), 1.0), alpha)
    return write("Mul", write("Add", write("Relu", x), bent), scale)


def _write_softplus(write: _Writer, x: str) -> str:
    """Add ``log(1 + exp(x))``, computed without an exponential of more than 0."""
    small = write("Exp", write("Neg", write("Abs", x)))
    return write("Add", write("Relu", x), write("Log", write("Add", small, 1.0)))


def _write_scaled_softplus(write: _Writer, x: str, beta: float = 1.0) -> str:
    """Add ``log(1 + exp(beta * x)) / beta``."""
    return write("Div", _write_softplus(write, write("Mul", x, beta)), beta)


FORMULAS: dict[str, Translation] = {
    "aten.celu": _formula(
        lambda write, x, alpha=1.0: _write_elu(write, x, alpha, input_scale=1 / alpha)
    ),
    "aten.elu": _formula(_write_elu),
    "aten.gelu": _formula(_write_gelu),
    "aten.mish": _formula(
        lambda write, x: write("Mul", x, write("Tanh", _write_softplus(write, x)))
    ),
    "aten.rsqrt": _formula(lambda write, x: write("Reciprocal", write("Sqrt", x))),
    "aten.silu": _formula(lambda write, x: write("Mul", x, write("Sigmoid", x))),
    "aten.softplus": _formula(_write_scaled_softplus),
}
"""Operation of PyTorch -> translation."""
