"""Functions of one real number, in float32, as ONNX has them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Reals = npt.NDArray[np.float32]
Attributes = Mapping[str, Any]
UNITS: Mapping[str, Mapping[str, float]] = {
    "Celu": {"alpha": 1.0},
    "Elu": {"alpha": 1.0},
    "Selu": {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875},
}
"""Exponential units -> their attributes' values, where the file has none."""


def _sigmoid(x: Reals, given: Attributes) -> Reals:
    made: Reals = (1 / (1 + np.exp(-x.astype(np.float64)))).astype(np.float32)
    return made


def _leaky_relu(x: Reals, given: Attributes) -> Reals:
    made: Reals = np.where(x >= 0, x, x * np.float32(given.get("alpha", 0.01)))
    return made


def _hard_sigmoid(x: Reals, given: Attributes) -> Reals:
    alpha, beta = (np.float32(given.get(name, d)) for name, d in (("alpha", 0.2), ("beta", 0.5)))
    made: Reals = np.clip(x * alpha + beta, 0, 1)
    return made


def _hard_swish(x: Reals, given: Attributes) -> Reals:
    return x * _hard_sigmoid(x, {"alpha": 1 / 6})


def _unit(op: str) -> Callable[[Reals, Attributes], Reals]:
    """``gamma * (max(x, 0) + alpha * (exp(min(x, 0)) - 1))``; Celu's exponent is over alpha."""

    def function(x: Reals, given: Attributes) -> Reals:
        numbers = {name: float(given.get(name, d)) for name, d in UNITS[op].items()}
        alpha, gamma = numbers["alpha"], numbers.get("gamma", 1.0)
        below = np.minimum(x.astype(np.float64), 0) / (alpha if op == "Celu" else 1)
        made: Reals = (gamma * (np.maximum(x, 0) + alpha * np.expm1(below))).astype(np.float32)
        return made

    return function


def _erf(x: Reals, given: Attributes) -> Reals:
    return np.array([math.erf(one) for one in x.reshape(-1)], np.float32).reshape(x.shape)


FUNCTIONS: Mapping[str, Callable[[Reals, Attributes], Reals]] = {
    "Abs": lambda x, given: np.abs(x),
    "Ceil": lambda x, given: np.ceil(x),
    "Celu": _unit("Celu"),
    "Cos": lambda x, given: np.cos(x),
    "Elu": _unit("Elu"),
    "Erf": _erf,
    "Exp": lambda x, given: np.exp(x.astype(np.float64)),
    "Floor": lambda x, given: np.floor(x),
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _hard_swish,
    "LeakyRelu": _leaky_relu,
    "Neg": lambda x, given: -x,
    "Round": lambda x, given: np.rint(x),
    "Selu": _unit("Selu"),
    "Sigmoid": _sigmoid,
    "Sign": lambda x, given: np.sign(x),
    "Sin": lambda x, given: np.sin(x),
    "Tanh": lambda x, given: np.tanh(x.astype(np.float64)),
}
"""Operator -> its values, finite ones for finite arguments and attributes."""
