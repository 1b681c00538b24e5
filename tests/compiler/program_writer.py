"""Values, types and scales of random programs, and devices that run the programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import attrs
import numpy as np
from hypothesis import strategies as st
from lir_draft import Draft, Ref, random_values, tensor_type

from nmpsim.config import default_device
from nmpsim.lir.nodes import ELEM_DTYPES, Module
from nmpsim.lir.printer import format_module

Array = np.ndarray[Any, Any]
CORES = (1, 2, 3, 4, 7, 8, 16, 31, 32, 64)
SCRATCHPADS = (4096, 4160, 6144, 8192, 16384, 32768, 65536, 131072)


class Program:
    """Module with its inputs and numerics profiles; its representation is LIR text."""

    def __init__(
        self,
        module: Module,
        inputs: dict[str, Array],
        numerics: str = "glow-int",
        by_layer: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.module = module
        self.inputs = inputs
        self.numerics = numerics
        self.by_layer = by_layer

    def __repr__(self) -> str:
        return f"{self.numerics} {dict(self.by_layer)}\n{format_module(self.module)}"


class Size:
    """Size of a device: cores and bytes of a scratchpad."""

    def __init__(self, cores: int, scratchpad_bytes: int) -> None:
        self.config = attrs.evolve(
            default_device(), cores_count=cores, scratchpad_bytes=scratchpad_bytes
        )

    def __repr__(self) -> str:
        return f"Size({self.config.cores_count}, {self.config.scratchpad_bytes})"


@st.composite
def sizes(draw: Any) -> Size:
    return Size(
        draw(st.sampled_from(CORES) | st.integers(1, 64)),
        draw(st.sampled_from(SCRATCHPADS) | st.integers(64, 2048).map(lambda n: 64 * n)),
    )


class Writer:
    """Writer that draws one operation after the other into a draft."""

    def __init__(self, draw: Any, elem: str = "i8", numerics: str = "glow-int") -> None:
        self.draw = draw
        self.elem = elem
        self.numerics = numerics
        self.unit = 1 if elem == "i8" else 256
        """How many times finer than Int8 the elements are."""
        self.draft = Draft()
        self.rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
        self.powers = draw(st.booleans())
        self.seen: list[Ref] = []
        """Tensors that hold values and are not written again."""

    def pick(self, *options: Any) -> Any:
        return self.draw(st.sampled_from(options))

    def number(self, low: int, high: int) -> int:
        return int(self.draw(st.integers(low, high)))

    def chance(self) -> bool:
        return bool(self.draw(st.booleans()))

    def scale(self, around: float | None = None) -> float:
        scale = (0.05 / self.unit if around is None else around) * 2 ** self.rng.uniform(-2, 2)
        return float(np.float32(2.0 ** round(np.log2(scale)) if self.powers else scale))

    def offset(self) -> int:
        low, high = -128 * self.unit, 128 * self.unit - 1
        return int(self.pick(0, 0, low, high, self.number(low, high)))

    def values(self, shape: tuple[int, ...], elem: str | None = None) -> Array:
        return random_values(self.rng, tensor_type(elem or self.elem, shape))

    def narrow_type(self, shape: tuple[int, ...], around: float | None = None) -> Any:
        return tensor_type(self.elem, shape, self.scale(around), self.offset())

    def result(self, shape: tuple[int, ...], around: float | None) -> Ref:
        return self.draft.result(self.narrow_type(shape, around))

    def constant(self, shape: tuple[int, ...]) -> Ref:
        return self.draft.constant(self.values(shape), self.elem, self.scale(), self.offset())

    def reshape(self, source: Ref, rank: int) -> Ref:
        """Return the tensor, or a view of it with another number of dimensions."""
        if len(source.shape) == rank:
            return source
        size = source.type.elements
        if rank == 2:
            first = source.shape[0] if source.shape else 1
            shape: tuple[int, ...] = (first, size // first)
        else:
            last = source.shape[-1] if source.shape else 1
            shape = (*(1,) * (rank - 2), size // last, last)
        return self.draft.view(source, attrs.evolve(source.type, shape=shape))

    def partner(self, like: Ref, kind: Any = None) -> Ref:
        """Draw another tensor of this shape: an earlier one, a constant or an input."""
        same = [r for r in self.seen if r.shape == like.shape and r.type.elem == self.elem]
        if same and self.chance():
            return self.draw(st.sampled_from(same))
        if self.chance():
            return self.constant(like.shape)
        return self.draft.input(self.narrow_type(like.shape))

    def bias(self, count: int, product: float, typical: float, target: Ref) -> Ref:
        """Draw a bias that the profile accepts and that is small in a 32-bit accumulator."""
        if self.numerics == "nmp":
            return self.bias_on_result(count, target)
        if self.numerics == "q31" or (self.numerics.startswith("float") and self.chance()):
            return self.draft.constant(self.spread(count, max(typical, 50.0)), "i32", product, 0)
        if self.numerics.startswith("float") and self.chance():
            values = self.rng.normal(0, max(typical, 50.0) * product, count).astype(np.float32)
            return self.draft.constant(values, "float")
        if self.chance():
            scale = product * 2.0 ** self.number(0, 8) if self.powers else product * 37.3
            elem = self.pick("i8", self.elem)
            offset = self.number(-128, 127)
            return self.draft.constant(self.values((count,), elem), elem, scale, offset)
        ratio = float(self.pick(1.0, 1.0, 4.0, 0.5))
        if not self.powers:
            ratio *= float(self.rng.uniform(0.7, 1.4))
        values = self.spread(count, max(typical, 50.0))
        offset = int(self.pick(0, 0, 1000, -77))
        return self.draft.constant(values, "i32", product * ratio, offset)

    def spread(self, count: int, width: float) -> Array:
        """Draw Int32 values around 0."""
        drawn = self.rng.normal(0, width, count)
        return np.clip(drawn, -(2**30), 2**30).astype(np.int32)

    def bias_on_result(self, count: int, target: Ref) -> Ref:
        """Draw a bias on the scale of the result, as the NMP's library needs, with any offset."""
        elem = self.pick("i8", "i16", "i32")
        values = self.rng.normal(0, 40 * self.unit, count).astype(np.int32)
        limits = np.iinfo(ELEM_DTYPES[elem])
        values = np.clip(values, limits.min, limits.max).astype(limits.dtype)
        offset = self.pick(0, 0, target.type.quant.offset, -7)
        offset = int(np.clip(offset, limits.min, limits.max))
        return self.draft.constant(values, elem, target.type.quant.scale, offset)


def parameters(kind: Any) -> tuple[float, int]:
    """Return scale and offset of a type, or 1 and 0 if it has none."""
    return (kind.quant.scale, kind.quant.offset) if kind.quant else (1.0, 0)


Step = Callable[[Writer, Ref], Ref]
"""Writes an operation on a tensor and gives its result."""
