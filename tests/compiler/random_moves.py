"""Operations that move elements of any kind: a draft's next step."""

from __future__ import annotations

import attrs
import numpy as np
from hypothesis import strategies as st
from lir_draft import Ref, random_values
from program_writer import Step, Writer, parameters


def copy(w: Writer, source: Ref) -> Ref:
    return w.draft.emit("copy", w.draft.result(source.type), source)


def transpose(w: Writer, source: Ref) -> Ref:
    order = tuple(w.draw(st.permutations(range(len(source.shape)))))
    shape = tuple(source.shape[i] for i in order)
    target = w.draft.result(attrs.evolve(source.type, shape=shape))
    return w.draft.emit("transpose", target, source, Shuffle=order)


def extract(w: Writer, source: Ref) -> Ref:
    sizes = tuple(w.number(1, n) for n in source.shape)
    offsets = tuple(w.number(0, n - s) for n, s in zip(source.shape, sizes, strict=True))
    target = w.draft.result(attrs.evolve(source.type, shape=sizes))
    return w.draft.emit("extracttensor", target, source, Offsets=offsets)


def insert(w: Writer, source: Ref) -> Ref:
    """Draw an insertion of the source, once or several times, into a tensor filled before."""
    if not source.shape:
        source = w.reshape(source, 1)
    axis, count = w.number(0, len(source.shape) - 1), w.pick(1, 1, 2, 3)
    extent = [n * (count if d == axis else 1) for d, n in enumerate(source.shape)]
    margins = [w.pick(0, 0, w.number(0, 3)) for _ in extent]
    kind = attrs.evolve(
        source.type, shape=tuple(n + m for n, m in zip(extent, margins, strict=True))
    )
    behind = w.draft.constant(random_values(w.rng, kind), kind.elem, *parameters(kind))
    target = w.draft.emit("copy", w.draft.result(kind), behind)
    offsets = tuple(w.number(0, m) for m in margins)
    return w.draft.emit("inserttensor", target, source, Offsets=offsets, Count=count, Axis=axis)


def concatenate(w: Writer, source: Ref) -> Ref:
    """Draw a concatenation of parts of one type in a buffer that was only touched."""
    if not source.shape:
        source = w.reshape(source, 1)
    axis = w.number(0, len(source.shape) - 1)
    parts = [source]
    for _ in range(w.number(1, 2)):
        shape = list(source.shape)
        shape[axis] = w.number(1, 5)
        kind = attrs.evolve(source.type, shape=tuple(shape))
        parts.append(w.draft.constant(random_values(w.rng, kind), kind.elem, *parameters(kind)))
    shape = list(source.shape)
    shape[axis] = sum(p.shape[axis] for p in parts)
    target = w.draft.result(attrs.evolve(source.type, shape=tuple(shape)))
    w.draft.emit("touch", target)
    at = 0
    for part in parts:
        offsets = tuple(at if d == axis else 0 for d in range(len(shape)))
        w.draft.emit("inserttensor", target, part, Offsets=offsets, Count=1, Axis=axis)
        at += part.shape[axis]
    return target


def slice_view(w: Writer, source: Ref) -> Ref:
    """Draw a view that begins at a random element of the source, or a copy of this view."""
    offsets = tuple(w.number(0, n - 1) for n in source.shape)
    start = int(np.ravel_multi_index(offsets, source.shape)) if offsets else 0
    size = w.number(1, source.type.elements - start)
    shape = w.pick((size,), (1, size), (1, 1, 1, size))
    view = w.draft.view(source, attrs.evolve(source.type, shape=shape), offsets)
    return copy(w, view) if w.draft.is_last or w.chance() else view


MOVES: tuple[Step, ...] = (copy, transpose, extract, insert, concatenate, slice_view)
