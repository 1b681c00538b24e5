"""Random quantization parameters as compilers choose them, and the clip of docs/isa.md."""

from __future__ import annotations

from typing import Any

import numpy as np
from core_tensors import Array
from core_words import F32
from oracles import page

SEEDS = range(6)
ELEMENTS = ("int8", "int16")
SHORT = {"int8": "i8", "int16": "i16"}


class Random:
    """Random source of quantities that a compiler would choose."""

    def __init__(self, seed: int, element: str) -> None:
        self._rng = np.random.default_rng(seed)
        self.element = element

    def values(self, *shape: int) -> Array:
        info = np.iinfo(self.element)
        return self._rng.integers(info.min, info.max + 1, shape).astype(self.element)

    def zero_point(self) -> int:
        return int(self.values())

    def scale(self, low: float = 0.001, high: float = 0.1) -> Any:
        return F32(np.exp(self._rng.uniform(np.log(low), np.log(high))))

    def scales(self, count: int) -> Array:
        return np.array([self.scale() for _ in range(count)], F32)

    def integers(self, count: int, most: int) -> Array:
        return self._rng.integers(-most, most + 1, count)

    def reals(self, count: int, most: float) -> Array:
        return self._rng.uniform(-most, most, count).astype(F32)


def clip_values(values: Array, r: Random) -> Array:
    return page.clip(values, SHORT[r.element])
