"""Functions of one real number, in float32, as ONNX has them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from nmpsim.kernels.hostops.rounding import fused_multiply_add

Reals = npt.NDArray[np.float32]
Attributes = Mapping[str, Any]
UNITS: Mapping[str, Mapping[str, float]] = {
    "Celu": {"alpha": 1.0},
    "Elu": {"alpha": 1.0},
    "Selu": {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875},
}
"""Exponential units -> their attributes' values, where the file has none."""
_LOGISTIC_P: Reals = np.array(
    (4.37031012579801e-11, 1.15627324459942e-07, 6.08574864600143e-05, 8.51377133304701e-03,
     2.48287947061529e-01), np.float32,
)  # fmt: skip
_LOGISTIC_Q: Reals = np.array(
    (6.10247389755681e-13, 5.76102136993427e-09, 6.29106785017040e-06, 1.70198817374094e-03,
     1.16817656904453e-01, 9.93151921023180e-01), np.float32,
)  # fmt: skip
"""Coefficients of ONNX Runtime's logistic function, the highest power first."""


def _polynomial(square: Reals, coefficients: Reals) -> Reals:
    total = np.full_like(square, coefficients[0])
    for coefficient in coefficients[1:]:
        total = fused_multiply_add(total, square, coefficient)
    return total


def _sigmoid(x: Reals, given: Attributes) -> Reals:
    """Compute ONNX Runtime's approximation of the logistic function: ``x * p(x^2) / q(x^2) + 0.5``.

    Source: ``onnxruntime/core/mlas/lib/logistic.cpp`` and ``LogisticKernelFma3``. It has absolute
    errors of up to 1e-7, many times the value of the function far below 0. Processors without
    fused multiplication and addition round more often there.
    """
    x = np.clip(x, np.float32(-18), np.float32(18))
    square = x * x
    quotient = (_polynomial(square, _LOGISTIC_P) * x) / _polynomial(square, _LOGISTIC_Q)
    made: Reals = np.maximum(quotient + np.float32(0.5), np.float32(0))
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
