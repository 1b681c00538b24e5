"""Functions of one real number in float32, as ONNX defines them, for look-up tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from nmpsim.kernels.hostops.rounding import fused_multiply_add

Floats = npt.NDArray[np.float32]
EXPONENTIAL_UNITS: Mapping[str, Mapping[str, float]] = {
    "Celu": {"alpha": 1.0},
    "Elu": {"alpha": 1.0},
    "Selu": {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875},
}
"""Exponential unit -> default values of its attributes."""
_LOGISTIC_P: Floats = np.array(
    (4.37031012579801e-11, 1.15627324459942e-07, 6.08574864600143e-05, 8.51377133304701e-03,
     2.48287947061529e-01), np.float32,
)  # fmt: skip
_LOGISTIC_Q: Floats = np.array(
    (6.10247389755681e-13, 5.76102136993427e-09, 6.29106785017040e-06, 1.70198817374094e-03,
     1.16817656904453e-01, 9.93151921023180e-01), np.float32,
)  # fmt: skip
"""Coefficients of ONNX Runtime's logistic function, the highest power first."""


def _polynomial(square: Floats, coefficients: Floats) -> Floats:
    total = np.full_like(square, coefficients[0])
    for coefficient in coefficients[1:]:
        total = fused_multiply_add(total, square, coefficient)
    return total


def _sigmoid(x: Floats) -> Any:
    """Compute ONNX Runtime's approximation of the logistic function: ``x * p(x^2) / q(x^2) + 0.5``.

    Source: ``onnxruntime/core/mlas/lib/logistic.cpp`` and ``LogisticKernelFma3``. It has absolute
    errors of up to 1e-7, many times the value of the function far below 0. Processors without
    fused multiplication and addition round more often there.
    """
    x = np.clip(x, np.float32(-18), np.float32(18))
    square = x * x
    quotient = (_polynomial(square, _LOGISTIC_P) * x) / _polynomial(square, _LOGISTIC_Q)
    return np.maximum(quotient + np.float32(0.5), np.float32(0))


def _leaky_relu(x: Floats, alpha: float = 0.01) -> Any:
    return np.where(x >= 0, x, x * np.float32(alpha))


def _hard_sigmoid(x: Floats, alpha: float = 0.2, beta: float = 0.5) -> Any:
    return np.clip(x * np.float32(alpha) + np.float32(beta), 0, 1)


def _exponential_unit(op: str) -> Callable[..., Any]:
    """Return ``gamma * (max(x, 0) + alpha * (exp(min(x, 0)) - 1))``; Celu: exp of x over alpha."""
    defaults = EXPONENTIAL_UNITS[op]

    def function(
        x: Floats, alpha: float = defaults["alpha"], gamma: float = defaults.get("gamma", 1.0)
    ) -> Any:
        gamma = gamma if "gamma" in defaults else 1.0
        below = np.minimum(x.astype(np.float64), 0) / (alpha if op == "Celu" else 1)
        return (gamma * (np.maximum(x, 0) + alpha * np.expm1(below))).astype(np.float32)

    return function


SCALAR_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "Abs": np.abs,
    "Ceil": np.ceil,
    "Celu": _exponential_unit("Celu"),
    "Cos": np.cos,
    "Elu": _exponential_unit("Elu"),
    "Erf": lambda x: np.array([math.erf(one) for one in x], np.float32),
    "Exp": lambda x: np.exp(x.astype(np.float64)),
    "Floor": np.floor,
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": lambda x: x * _hard_sigmoid(x, 1 / 6),
    "LeakyRelu": _leaky_relu,
    "Neg": np.negative,
    "Round": np.rint,
    "Selu": _exponential_unit("Selu"),
    "Sigmoid": _sigmoid,
    "Sign": np.sign,
    "Sin": np.sin,
    "Tanh": lambda x: np.tanh(x.astype(np.float64)),
}
"""Operator -> its function of float32 [N] and, as keyword arguments, attributes; finite for finite
arguments."""
