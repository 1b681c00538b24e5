"""Operations that move values or make them out of nothing."""

from __future__ import annotations

import numpy as np

from nmpsim.interpreter.arithmetic import RealArray
from nmpsim.interpreter.call import Call
from nmpsim.lir.nodes import ELEM_DTYPES


def splat(call: Call) -> RealArray:
    """Value everywhere."""
    return np.full(call.site.shape("Dest"), call.site.number("Value"))


def transpose(call: Call) -> RealArray:
    """Dest dimension i is Src dimension Shuffle[i]."""
    return call["Src"].transpose(call.site.integers("Shuffle"))


def insert_tensor(call: Call) -> RealArray:
    """Src, Count times along Axis, put into Dest at Offsets."""
    parts = [call["Src"]] * call.site.integer("Count")
    block = np.concatenate(parts, axis=call.site.integer("Axis"))
    result = call["Dest"].copy()
    result[_box(call, block.shape)] = block
    return result


def extract_tensor(call: Call) -> RealArray:
    """The part of Src at Offsets."""
    return call["Src"][_box(call, call.site.shape("Dest"))]


def _box(call: Call, extent: tuple[int, ...]) -> tuple[slice, ...]:
    offsets = call.site.integers("Offsets")
    return tuple(slice(o, o + size) for o, size in zip(offsets, extent, strict=True))


def look_up(call: Call) -> RealArray:
    """Mapping's entry for the integer that Src's nearest quantized value has."""
    src = call.site.types["Src"]
    limits = np.iinfo(ELEM_DTYPES[src.elem])
    scale, offset = (src.quant.scale, src.quant.offset) if src.quant else (1.0, 0)
    integers = np.rint(call["Src"] / scale) + offset
    places = np.clip(integers, limits.min, limits.max).astype(np.int64) - int(limits.min)
    entries: RealArray = call["Mapping"].reshape(-1)[places]
    return entries


def resize_nearest(call: Call) -> RealArray:
    """From input place ``min(int(fl(o / scale)), size - 1)`` (float32, as Glow)."""
    value = call.instruction.attributes["Scale"]
    factors = [np.float32(f) for f in value] if isinstance(value, tuple) else []
    places = [
        np.minimum((np.arange(out, dtype=np.float32) / factor).astype(np.int64), size - 1)
        for out, size, factor in zip(
            call.site.shape("Dest"), call["Src"].shape, factors, strict=True
        )
    ]
    return call["Src"][np.ix_(*places)]
