"""Oracles in plain loops over elements for the operations of Glow's Interpreter.

Each takes the values of the operands that are read, by role, the shape of each result, and the
instruction's attributes, and gives the results in print order. float32 steps are written out.
"""

# ruff: noqa: N803 - arguments are named as the attributes are

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
F = np.float32


def places(shape: tuple[int, ...]) -> Any:
    return itertools.product(*(range(n) for n in shape))


def top_k(v: dict[str, Array], shapes: Any, K: int) -> list[Array]:
    x = v["Input"]
    values, indices = np.zeros(shapes[0], x.dtype), np.zeros(shapes[1], np.int64)
    for row in places(x.shape[:-1]):
        pairs = sorted((-float(x[(*row, i)]), i) for i in range(x.shape[-1]))
        for k in range(K):
            values[(*row, k)], indices[(*row, k)] = x[(*row, pairs[k][1])], pairs[k][1]
    return [values, indices]


def _arg(v: dict[str, Array], shapes: Any, axis: int, better: Any, worst: Any) -> list[Array]:
    x = v["Src"]
    limits = np.finfo(x.dtype) if x.dtype.kind == "f" else np.iinfo(x.dtype)
    flat = []
    for at in places(tuple(n for d, n in enumerate(x.shape) if d != axis)):
        best, index = float(getattr(limits, worst)), 0
        for i in range(x.shape[axis]):
            value = float(x[(*at[:axis], i, *at[axis:])])
            if better(value, best):
                best, index = value, i
        flat.append(index)
    return [np.array(flat).reshape(shapes[0])]


def arg_max(v: dict[str, Array], shapes: Any, Axis: int, KeepDims: int) -> list[Array]:
    return _arg(v, shapes, Axis, lambda a, b: a > b, "min")


def arg_min(v: dict[str, Array], shapes: Any, Axis: int, KeepDims: int) -> list[Array]:
    return _arg(v, shapes, Axis, lambda a, b: a < b, "max")


def gather(v: dict[str, Array], shapes: Any, BatchDims: int) -> list[Array]:
    data, indices = v["Data"], v["Indices"]
    out = np.zeros(shapes[0], data.dtype)
    rank = indices.ndim
    for at in places(shapes[0]):
        middle = at[BatchDims : BatchDims + rank]
        source = (*at[:BatchDims], indices[middle], *at[BatchDims + rank :])
        out[at] = data[source]
    return [out]


def gather_nd(v: dict[str, Array], shapes: Any, BatchDims: int) -> list[Array]:
    data, indices = v["Data"], v["Indices"]
    out = np.zeros(shapes[0], data.dtype)
    for at in places(indices.shape[:-1]):
        out[at] = data[(*at[:BatchDims], *(int(i) for i in indices[at]))]
    return [out]


def gather_elements(v: dict[str, Array], shapes: Any, Dim: int) -> list[Array]:
    data, indices = v["Data"], v["Indices"]
    out = np.zeros(shapes[0], data.dtype)
    for at in places(indices.shape):
        index = int(indices[at])
        index += data.shape[Dim] if index < 0 else 0
        out[at] = data[(*at[:Dim], index, *at[Dim + 1 :])]
    return [out]


def gather_ranges(v: dict[str, Array], shapes: Any) -> list[Array]:
    taken, lengths = [], []
    for example in v["Ranges"].tolist():
        lengths.append(sum(n for _, n in example))
        for start, count in example:
            taken += v["Data"].tolist()[start : start + count]
    return [np.array(taken, v["Data"].dtype), np.array(lengths)]


def scatter_data(
    v: dict[str, Array], shapes: Any, Cumulative: int, grids: Any = None
) -> list[Array]:
    data = v["Data"].copy()
    for index, piece in zip(v["Indices"].tolist(), v["Slices"], strict=True):
        for at in places(piece.shape):
            place = (*index, *at)
            if not Cumulative:
                data[place] = piece[at]
            elif grids is None:
                data[place] = data[place] + piece[at]
            else:
                (s, o), (t, p) = grids
                total = F(F(s) * F(int(data[place]) - o)) + F(F(t) * F(int(piece[at]) - p))
                data[place] = min(127, max(-128, round(float(F(F(total / F(s)) + F(o))))))
    return [data]


def non_zero(v: dict[str, Array], shapes: Any) -> list[Array]:
    true = [i for i, c in enumerate(v["Cond"].reshape(-1).tolist()) if c]
    out = np.zeros(math.prod(shapes[0]), np.int64)
    for i, place in enumerate(true):
        out[i] = place
    return [out.reshape(shapes[0])]


def bucketize(v: dict[str, Array], shapes: Any, Boundaries: Any) -> list[Array]:
    return [np.array([sum(F(b) < x for b in Boundaries) for x in v["Src"].reshape(-1)])]


def batch_one_hot(v: dict[str, Array], shapes: Any) -> list[Array]:
    out = np.zeros(shapes[0], v["Data"].dtype)
    for batch in range(shapes[0][0]):
        first = 0
        for feature, count in enumerate(v["Lengths"].tolist()):
            for i in range(first, first + count):
                out[batch, i] = v["Data"][batch, feature] == v["Values"][i]
            first += count
    return [out]


def _reduce(v: dict[str, Array], shapes: Any, axes: Any, better: Any) -> list[Array]:
    x, best = v["Batch"], {}
    for at in places(x.shape):
        key = tuple(i for d, i in enumerate(at) if d not in axes)
        if key not in best or better(x[at], best[key]):
            best[key] = x[at]
    return [np.array([best[k] for k in sorted(best)]).reshape(shapes[0])]


def reduce_min(v: dict[str, Array], shapes: Any, Axes: Any) -> list[Array]:
    return _reduce(v, shapes, Axes, lambda a, b: a < b)


def reduce_max(v: dict[str, Array], shapes: Any, Axes: Any) -> list[Array]:
    return _reduce(v, shapes, Axes, lambda a, b: a > b)


def reduce_prod(v: dict[str, Array], shapes: Any, Axis: int) -> list[Array]:
    x, out = v["Batch"], {}
    for at in places(x.shape):
        key = (*at[:Axis], *at[Axis + 1 :])
        out[key] = x[at] if key not in out else out[key] * x[at]
    return [np.array([out[k] for k in sorted(out)]).reshape(shapes[0])]


def cum_sum(
    v: dict[str, Array], shapes: Any, Dim: int, Exclusive: int, Reverse: int
) -> list[Array]:
    x = v["Input"]
    axis = Dim + x.ndim if Dim < 0 else Dim
    out = np.zeros_like(x)
    for at in places((*x.shape[:axis], *x.shape[axis + 1 :])):
        total = x.dtype.type(0)
        order = range(x.shape[axis])
        for i in reversed(order) if Reverse else order:
            place = (*at[:axis], i, *at[axis:])
            before, total = total, total + x[place]
            out[place] = before if Exclusive else total
    return [out]


def flip(v: dict[str, Array], shapes: Any, Axis: int) -> list[Array]:
    x = v["Src"]
    out = np.zeros_like(x)
    for at in places(x.shape):
        out[(*at[:Axis], x.shape[Axis] - 1 - at[Axis], *at[Axis + 1 :])] = x[at]
    return [out]


def space_to_depth(v: dict[str, Array], shapes: Any, BlockSize: int) -> list[Array]:
    x = v["Src"]
    out = np.zeros(shapes[0], x.dtype)
    for n, h, w, c in places(shapes[0]):
        layer = c // x.shape[3]
        row, column = h * BlockSize + layer // BlockSize, w * BlockSize + layer % BlockSize
        out[n, h, w, c] = x[n, row, column, c % x.shape[3]]
    return [out]


def resize_bilinear(v: dict[str, Array], shapes: Any, Scale: Any) -> list[Array]:
    x = v["Src"]
    out = np.zeros(shapes[0], x.dtype)
    for n, oh, ow, c in places(shapes[0]):
        ihf, iwf = F(oh) / F(Scale[1]), F(ow) / F(Scale[2])
        ih, iw = int(ihf), int(iwf)
        h0, h1 = min(ih, x.shape[1] - 1), min(ih + 1, x.shape[1] - 1)
        w0, w1 = min(iw, x.shape[2] - 1), min(iw + 1, x.shape[2] - 1)
        number = (lambda a: F(a)) if x.dtype.kind == "f" else int
        v00, v01 = number(x[n, h0, w0, c]), number(x[n, h0, w1, c])
        v10, v11 = number(x[n, h1, w0, c]), number(x[n, h1, w1, c])
        hd = F(v00) + F(F(v10 - v00) * (ihf - F(ih)))
        hw = F(v01) + F(F(v11 - v01) * (ihf - F(ih)))
        value = hd + F((hw - hd) * (iwf - F(iw)))
        out[n, oh, ow, c] = value if x.dtype.kind == "f" else int(value)
    return [out]


def batch_matmul(v: dict[str, Array], shapes: Any) -> list[Array]:
    lhs, rhs = v["LHS"], v["RHS"]
    out = np.zeros(shapes[0], F)
    for b, m, n in places(shapes[0]):
        total = F(0)
        for k in range(lhs.shape[2]):
            total = F(total + F(lhs[b, m, k] * rhs[b, k, n]))
        out[b, m, n] = total
    return [out]


def batch_normalization(
    v: dict[str, Array], shapes: Any, ChannelIdx: int, Epsilon: float, Momentum: float,
    grids: Any = None,
) -> list[Array]:  # fmt: skip
    x, out = v["Src"], np.zeros(shapes[0], v["Src"].dtype)
    for at in places(x.shape):
        scale, bias, mean, var = (v[r][at[ChannelIdx]] for r in ("Scale", "Bias", "Mean", "Var"))
        root = np.sqrt(F(var + F(Epsilon)))
        if grids is None:
            out[at] = F(F(F(scale / root) * F(x[at] - mean)) + bias)
            continue
        (sx, ox), (sy, oy) = grids
        inverse = F(1) / root
        alpha = F(F(inverse * scale) * F(F(sx) / F(sy)))
        beta = F(F(bias - F(F(mean * inverse) * scale)) / F(sy))
        y = F(F(alpha * F(int(x[at]) - ox)) + beta)
        out[at] = min(127, max(-128, round(float(F(y + F(oy))))))
    return [out]


def layer_normalization(v: dict[str, Array], shapes: Any, Epsilon: float) -> list[Array]:
    count = v["Scale"].size
    rows, scale, bias = v["Src"].reshape(-1, count), v["Scale"].reshape(-1), v["Bias"].reshape(-1)
    out = np.zeros_like(rows)
    for n, row in enumerate(rows):
        total = F(0)
        for x in row:
            total = F(total + x)
        mean, squares = F(total / F(count)), F(0)
        for x in row:
            squares = F(squares + F(F(x - mean) * F(x - mean)))
        std = np.sqrt(F(F(squares / F(count)) + F(Epsilon)))
        for k, x in enumerate(row):
            out[n, k] = F(F(F(F(x - mean) / std) * scale[k]) + bias[k])
    return [out.reshape(shapes[0])]


def adaptive_avg_pool(v: dict[str, Array], shapes: Any, grids: Any = None) -> list[Array]:
    x, out = v["Src"], np.zeros(shapes[0], v["Src"].dtype)
    for n, oy, ox, c in places(shapes[0]):
        ys = range(oy * x.shape[1] // shapes[0][1], -(-(oy + 1) * x.shape[1] // shapes[0][1]))
        xs = range(ox * x.shape[2] // shapes[0][2], -(-(ox + 1) * x.shape[2] // shapes[0][2]))
        total = F(0)
        for iy, ix in itertools.product(ys, xs):
            total = F(total + F(int(x[n, iy, ix, c]) - grids[0][1] if grids else x[n, iy, ix, c]))
        if grids is None:
            out[n, oy, ox, c] = F(F(total / F(len(xs))) / F(len(ys)))
            continue
        (sx, _), (sy, zero) = grids
        factor = F(F(F(F(sx) / F(sy)) / F(len(xs))) / F(len(ys)))
        out[n, oy, ox, c] = min(127, max(-128, round_half_away(F(F(total * factor) + F(zero)))))
    return [out]


def round_half_away(x: Any) -> int:
    """Round to the nearest integer like ``std::round``."""
    return math.floor(abs(float(x)) + 0.5) * (1 if x >= 0 else -1)


def convolution_3d(
    v: dict[str, Array], shapes: Any, Kernels: Any, Strides: Any, Pads: Any, Group: int,
    grids: Any = None, limits: tuple[int, int] = (-128, 127),
) -> list[Array]:  # fmt: skip
    x, filters, bias = v["Src"], v["Filter"], v["Bias"]
    out = np.zeros(shapes[0], x.dtype)
    depth, per_group = filters.shape[4], shapes[0][4] // Group
    for n, t, h, w, o in places(shapes[0]):
        total: Any = F(0) if grids is None else 0
        starts = [p * s - b for p, s, b in zip((t, h, w), Strides, Pads[::2], strict=True)]
        for tap in places(tuple(Kernels)):
            at = [s + k for s, k in zip(starts, tap, strict=True)]
            if any(not 0 <= a < size for a, size in zip(at, x.shape[1:4], strict=True)):
                continue
            for i in range(depth):
                pixel = x[(n, *at, o // per_group * depth + i)]
                weight = filters[(o, *tap, i)]
                if grids is None:
                    total = F(total + F(weight * pixel))
                else:
                    total += (int(weight) - grids[1][1]) * (int(pixel) - grids[0][1])
        if grids is None:
            out[n, t, h, w, o] = F(total + bias[o])
            continue
        (sx, _), (sw, _), (sb, ob), (sy, oy) = grids
        product = F(F(sx) * F(sw))
        total += round_half_away(F(F(int(bias[o]) - ob) * F(F(sb) / product)))
        scaled = F(F(F(total) * F(product / F(sy))) + F(oy))
        out[n, t, h, w, o] = min(limits[1], max(limits[0], round_half_away(scaled)))
    return [out]


def avg_pool_3d(
    v: dict[str, Array], shapes: Any, Kernels: Any, Strides: Any, Pads: Any,
    CountIncludePads: int, Layout: int, grids: Any = None,
) -> list[Array]:  # fmt: skip
    x, out = v["Src"], np.zeros(shapes[0], v["Src"].dtype)
    for n, t, h, w, c in places(shapes[0]):
        starts = [p * s - b for p, s, b in zip((t, h, w), Strides, Pads[::2], strict=True)]
        total, area = F(0), 0
        for tap in places(tuple(Kernels)):
            at = [s + k for s, k in zip(starts, tap, strict=True)]
            inside = all(0 <= a < size for a, size in zip(at, x.shape[1:4], strict=True))
            area += inside or CountIncludePads
            if inside:
                pixel = x[(n, *at, c)]
                total = F(total + F(int(pixel) - grids[0][1] if grids else pixel))
        if grids is None:
            out[n, t, h, w, c] = F(total / F(area))
            continue
        (sx, _), (sy, oy) = grids
        factor = F(F(F(sx) / F(sy)) / F(area))
        placed = F(F(total / F(F(1) / factor)) + F(oy))
        out[n, t, h, w, c] = min(127, max(-128, round(float(placed))))
    return [out]


def conv_transpose(
    v: dict[str, Array], shapes: Any, Kernels: Any, Strides: Any, Pads: Any, Group: int,
    Dilation: Any,
) -> list[Array]:  # fmt: skip
    x, filters = v["Src"], v["Filter"]
    images, height, width, channels = x.shape
    out = np.zeros(shapes[0], F)
    out[...] = v["Bias"]
    outs = filters.shape[0]
    for n, d, by, bx in places((images, channels, height, width)):
        group = d // (channels // Group)
        for ky, kx in places(tuple(Kernels)):
            ay = by * Strides[0] - Pads[0] + ky * Dilation[0]
            ax = bx * Strides[1] - Pads[1] + kx * Dilation[1]
            if 0 <= ay < shapes[0][1] and 0 <= ax < shapes[0][2]:
                for c in range(outs):
                    at = (n, ay, ax, group * outs + c)
                    out[at] = F(out[at] + F(filters[c, ky, kx, d] * x[n, by, bx, d]))
    return [out]


def quantize_function(
    f: Callable[..., Any], grids: Any, limits: tuple[int, int]
) -> Callable[..., int]:
    """Return ``quantize(f(dequantize(q)))`` as a function; the last grid is the result's."""
    *ins, (sy, oy) = grids

    def of(*qs: int) -> int:
        reals = [float(F(F(s) * F(int(q) - o))) for q, (s, o) in zip(qs, ins, strict=True)]
        with np.errstate(over="ignore"):
            placed = F(F(F(f(*reals)) / F(sy)) + F(oy))
        if math.isnan(placed):
            placed = F(oy)
        held = max(-1e9, min(1e9, float(placed)))
        return min(limits[1], max(limits[0], round(held)))

    return of
