"""Functions of each value that ONNX's older operators write as several."""

from __future__ import annotations

import math
from collections.abc import Callable

import attrs
import numpy as np

from nmpsim.frontends.torch.graph_builder import Draw, TorchGraphBuilder


def formula(write: Callable[[Writing, str], str]) -> Draw:
    """A function of each value, written with several operators."""

    def draw(builder: TorchGraphBuilder) -> None:
        write(Writing(builder), builder.name(builder.call.arguments["self"]))
        builder.steps[-1] = attrs.evolve(builder.steps[-1], outputs=(builder.first_output(),))

    return draw


class Writing:
    """Operators one after the other; numbers are constants."""

    def __init__(self, builder: TorchGraphBuilder) -> None:
        self._builder = builder
        self.call = builder.call

    def __call__(self, op: str, *operands: str | float) -> str:
        """The name of an operator's result."""
        names = [
            one
            if isinstance(one, str)
            else self._builder.add_constant("number", np.array(one, np.float32))
            for one in operands
        ]
        return self._builder.add(op, names, self._builder.unique_name(op.lower()))

    def number(self, argument: str) -> float:
        """An argument that is a number, or 1 if it is not there."""
        return float(self.call.arguments.get(argument, 1))

    def softplus(self, x: str) -> str:
        """``log(1 + exp(x))``, without an exponential of more than 0."""
        small = self("Exp", self("Neg", self("Abs", x)))
        return self("Add", self("Relu", x), self("Log", self("Add", small, 1.0)))


def gelu(write: Writing, x: str) -> str:
    """``x * (1 + erf(x / sqrt(2))) / 2``, or its form with tanh."""
    if write.call.arguments.get("approximate") == "tanh":
        cube = write("Mul", write("Mul", write("Mul", x, x), x), 0.044715)
        inner = write("Mul", write("Add", x, cube), math.sqrt(2 / math.pi))
        share = write("Tanh", inner)
    else:
        share = write("Erf", write("Mul", x, math.sqrt(0.5)))
    return write("Mul", write("Mul", x, write("Add", share, 1.0)), 0.5)


def elu(write: Writing, x: str) -> str:
    """ELU, CELU and SELU: ``scale * (max(x, 0) + alpha * (exp(inner * min(x, 0)) - 1))``."""
    alpha, scale, inner = map(write.number, ("alpha", "scale", "input_scale"))
    if write.call.operation == "aten.celu":
        inner = 1 / alpha
    below = write("Mul", write("Neg", write("Relu", write("Neg", x))), inner)
    bent = write("Mul", write("Sub", write("Exp", below), 1.0), alpha)
    return write("Mul", write("Add", write("Relu", x), bent), scale)


def softplus(write: Writing, x: str) -> str:
    """``log(1 + exp(beta * x)) / beta``."""
    beta = write.number("beta")
    return write("Div", write.softplus(write("Mul", x, beta)), beta)
