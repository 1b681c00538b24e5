"""Random instructions of every operation that only the host does, with what they must give.

``ON_THE_DEVICE`` has some that the device does.
"""

# ruff: noqa: N803 - arguments are named as the attributes are

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import operation_oracles as oracles
from one_instruction import Array, OneInstruction, plain, quantized

from nmpsim.lir.nodes import TensorType
from nmpsim.lir.opcodes import OPCODES

Rng = np.random.Generator
Grid = tuple[float, int]
F = np.float32
LIMITS = {"i8": (-128, 127), "i16": (-32768, 32767)}


@attrs.frozen(eq=False)
class Case:
    """An instruction, what an oracle says of it, and by how many last places it may be off."""

    it: OneInstruction
    expected: list[Array]
    units: int = 0
    near: float = 0.0
    """Absolute tolerance, for a difference of large numbers; 0 asks for equality."""


def shape(rng: Rng, low: int = 1, high: int = 4, most: int = 5) -> tuple[int, ...]:
    return tuple(int(n) for n in rng.integers(1, most, rng.integers(low, high + 1)))


def values(rng: Rng, elem: str, of: tuple[int, ...]) -> Array:
    if elem == "float":
        return rng.normal(0, 3, of).astype(F)
    if elem == "bool":
        return rng.integers(0, 2, of).astype(np.bool_)
    dtype = TensorType(elem, ()).dtype
    limits = (-50, 50) if elem.startswith("index") else LIMITS[elem]
    return rng.integers(*limits, of, endpoint=True).astype(dtype)


def ties(rng: Rng, elem: str, of: tuple[int, ...]) -> Array:
    """Few different values, so that there are equal ones."""
    return rng.integers(-2, 3, of).astype(TensorType(elem, ()).dtype)


def grid(rng: Rng, elem: str = "i8") -> Grid:
    power = int(rng.integers(-5, 0)) - (8 if elem == "i16" else 0)
    return 2.0**power, int(rng.integers(-20, 20))


def kind(elem: str, of: tuple[int, ...], at: Grid) -> TensorType:
    if elem in LIMITS:
        return quantized(elem, of, *at)
    return TensorType(elem, of)


def case(
    oracle: Callable[..., list[Array]],
    opcode: str,
    read: dict[str, Array],
    results: list[TensorType],
    elem: str | None = None,
    at: Grid = (0.25, 3),
    units: int = 0,
    near: float = 0.0,
    **attributes: Any,
) -> Case:
    """All operands of one kind ``elem`` and grid, but for those that are no such values."""
    written = iter(results)
    types = []
    for role in OPCODES[opcode].operands:
        if role.is_scratch:
            types.append(quantized("i8", (8,), 0.0, 0))
        elif role.kind == "@out":
            types.append(next(written))
        elif elem in LIMITS and read[role.name].dtype == TensorType(elem or "", ()).dtype:
            types.append(kind(elem or "", read[role.name].shape, at))
        else:
            types.append(plain(read[role.name]))
    if opcode == "scatterdata":
        results = [types[0]]
    it = OneInstruction(opcode, tuple(types), read, attributes)
    shapes = [result.shape for result in results]
    return Case(it, oracle(read, shapes, **attributes), units, near)


INDEX = ["index32", "index64"]
MOVED = ["float", "i8", "i16", "index32", "index64", "bool"]


def top_k(rng: Rng) -> Case:
    elem, of = rng.choice(["float", "i8", "i16"]), shape(rng, most=8)
    count = int(rng.integers(1, of[-1] + 1))
    x = (ties if rng.random() < 0.5 else values)(rng, elem, of)
    out = (*of[:-1], count)
    results = [kind(elem, out, (0.25, 3)), TensorType(rng.choice(INDEX), out)]
    return case(oracles.top_k, "topk", {"Input": x}, results, elem, K=count)


def arg(rng: Rng, which: str) -> Case:
    elem, of = rng.choice(["float", "i8", "i16"]), shape(rng, most=6)
    axis, keep = int(rng.integers(len(of))), int(rng.integers(2))
    out = (*of[:axis], *((1,) * keep), *of[axis + 1 :])
    oracle = oracles.arg_max if which == "argmax" else oracles.arg_min
    x = (ties if rng.random() < 0.5 else values)(rng, elem, of)
    results = [TensorType(rng.choice(INDEX), out)]
    return case(oracle, which, {"Src": x}, results, elem, Axis=axis, KeepDims=keep)


def gather(rng: Rng) -> Case:
    elem, of = rng.choice(MOVED), shape(rng, 1, 3)
    axis = int(rng.integers(len(of)))
    where = rng.integers(0, of[axis], shape(rng, 0, 2)).astype(rng.choice([np.int32, np.int64]))
    out = (*of[:axis], *np.shape(where), *of[axis + 1 :])
    read = {"Data": values(rng, elem, of), "Indices": np.asarray(where)}
    results = [kind(elem, out, (0.25, 3))]
    return case(oracles.gather, "gather", read, results, elem, BatchDims=axis)


def gather_nd(rng: Rng) -> Case:
    elem, of = rng.choice(MOVED), shape(rng, 2, 4)
    batch = int(rng.integers(0, len(of) - 1))
    length = int(rng.integers(1, len(of) - batch + 1))
    lead = (*of[:batch], *shape(rng, 0, 1))
    parts = [rng.integers(0, of[batch + d], lead) for d in range(length)]
    where = np.stack(parts, axis=-1).astype(rng.choice([np.int32, np.int64]))
    read = {"Data": values(rng, elem, of), "Indices": where}
    results = [kind(elem, (*lead, *of[batch + length :]), (0.25, 3))]
    return case(oracles.gather_nd, "gathernd", read, results, elem, BatchDims=batch)


def gather_elements(rng: Rng) -> Case:
    elem, of = rng.choice(MOVED), shape(rng, 1, 3)
    axis = int(rng.integers(len(of)))
    picked = tuple(int(rng.integers(1, n + 1)) for n in of)
    where = rng.integers(-of[axis], of[axis], picked).astype(rng.choice([np.int32, np.int64]))
    read = {"Data": values(rng, elem, of), "Indices": where}
    results = [kind(elem, picked, (0.25, 3))]
    return case(oracles.gather_elements, "gatherelements", read, results, elem, Dim=axis)


def gather_ranges(rng: Rng) -> Case:
    elem = rng.choice(["float", "i8", "index64"])
    data = values(rng, elem, (9,))
    starts = rng.integers(0, 9, (3, 2))
    counts = np.minimum(rng.integers(1, 5, (3, 2)), 9 - starts)
    ranges = np.stack([starts, counts], axis=-1).astype(rng.choice([np.int32, np.int64]))
    results = [kind(elem, (int(counts.sum()),), (0.25, 3)), plain(ranges[:, 0, 0])]
    read = {"Data": data, "Ranges": ranges}
    return case(oracles.gather_ranges, "gatherranges", read, results, elem)


def scatter(rng: Rng) -> Case:
    elem, of = rng.choice(["float", "i8", "i16", "index32"]), shape(rng, 1, 3)
    cumulative = int(rng.integers(2)) if elem != "i16" else 0
    length = int(rng.integers(1, len(of) + 1))
    rows = int(rng.integers(1, 5))
    where = np.stack([rng.integers(0, of[d], rows) for d in range(length)], axis=-1)
    read = {
        "Data": values(rng, elem, of),
        "Indices": where.astype(rng.choice([np.int32, np.int64])),
        "Slices": values(rng, elem, (rows, *of[length:])),
    }
    oracle = oracles.scatter_data
    if elem == "i8" and cumulative:

        def oracle(v, shapes, **a):
            return oracles.scatter_data(v, shapes, **a, grids=((0.25, 3), (0.25, 3)))

    return case(oracle, "scatterdata", read, [], elem, Cumulative=cumulative)


def non_zero(rng: Rng) -> Case:
    condition = values(rng, "bool", (int(rng.integers(1, 9)),))
    results = [TensorType("index32", (condition.size, 1))]
    return case(oracles.non_zero, "nonzero", {"Cond": condition}, results)


def bucketize(rng: Rng) -> Case:
    boundaries = tuple(sorted(float(b) for b in rng.integers(-3, 4, 4)))
    x = rng.integers(-4, 5, (int(rng.integers(1, 9)),)).astype(F)
    results = [TensorType("index32", x.shape)]
    return case(oracles.bucketize, "bucketize", {"Src": x}, results, Boundaries=boundaries)


def batch_one_hot(rng: Rng) -> Case:
    elem = rng.choice(["float", "i8", "index32", "index64"])
    lengths = rng.integers(0, 3, 3).astype(np.int32)
    lengths[0] += 1
    total = int(lengths.sum())
    data, given = ties(rng, elem, (4, 3)), ties(rng, elem, (total,))
    read = {"Data": data, "Lengths": lengths, "Values": given}
    results = [kind(elem, (4, total), (0.25, 3))]
    return case(oracles.batch_one_hot, "batchonehot", read, results, elem)


def reduce_extreme(rng: Rng, which: str) -> Case:
    elem, of = rng.choice(["float", "i8", "index32", "index64"]), shape(rng)
    axes = tuple(sorted(rng.choice(len(of), rng.integers(1, len(of) + 1), replace=False).tolist()))
    out = tuple(n for d, n in enumerate(of) if d not in axes)
    oracle = oracles.reduce_min if which == "batchedreducemin" else oracles.reduce_max
    x, results = values(rng, elem, of), [kind(elem, out, (0.25, 3))]
    return case(oracle, which, {"Batch": x}, results, elem, Axes=axes)


def reduce_prod(rng: Rng) -> Case:
    elem, of = rng.choice(["float", "index32", "index64"]), shape(rng)
    axis = int(rng.integers(len(of)))
    results = [TensorType(elem, (*of[:axis], *of[axis + 1 :]))]
    read = {"Batch": values(rng, elem, of)}
    return case(oracles.reduce_prod, "batchedreduceprod", read, results, Axis=axis)


def cum_sum(rng: Rng) -> Case:
    elem, of = rng.choice(["float", "index32", "index64"]), shape(rng)
    attributes = {
        "Dim": int(rng.integers(-len(of), len(of))),
        "Exclusive": int(rng.integers(2)),
        "Reverse": int(rng.integers(2)),
    }
    read = {"Input": values(rng, elem, of)}
    return case(oracles.cum_sum, "cumsum", read, [TensorType(elem, of)], **attributes)


def flip(rng: Rng) -> Case:
    elem, of = rng.choice(MOVED), shape(rng)
    x, results = values(rng, elem, of), [kind(elem, of, (0.25, 3))]
    return case(oracles.flip, "flip", {"Src": x}, results, elem, Axis=int(rng.integers(len(of))))


def space_to_depth(rng: Rng) -> Case:
    elem, block = rng.choice(["float", "i8", "index64"]), int(rng.integers(1, 4))
    n, h, w, c = (int(i) for i in rng.integers(1, 4, 4))
    x = values(rng, elem, (n, h * block, w * block, c))
    results = [kind(elem, (n, h, w, c * block * block), (0.25, 3))]
    return case(oracles.space_to_depth, "spacetodepth", {"Src": x}, results, elem, BlockSize=block)


def resize_bilinear(rng: Rng) -> Case:
    elem = rng.choice(["float", "i8", "i16", "index32"])
    n, h, w, c = (int(i) for i in rng.integers(1, 5, 4))
    scale = (1.0, *rng.choice([0.5, 1.0, 1.5, 2.0, 3.0], 2).tolist(), 1.0)
    out = (n, max(1, int(h * scale[1])), max(1, int(w * scale[2])), c)
    scale = (1.0, *(s if int(k * s) else 1.0 for k, s in ((h, scale[1]), (w, scale[2]))), 1.0)
    x, results = values(rng, elem, (n, h, w, c)), [kind(elem, out, (0.25, 3))]
    return case(oracles.resize_bilinear, "resizebilinear", {"Src": x}, results, elem, Scale=scale)


def batch_matmul(rng: Rng) -> Case:
    b, m, k, n = (int(i) for i in rng.integers(1, 5, 4))
    read = {"LHS": values(rng, "float", (b, m, k)), "RHS": values(rng, "float", (b, k, n))}
    return case(oracles.batch_matmul, "batchmatmul", read, [TensorType("float", (b, m, n))])


def _parameters(rng: Rng, count: int) -> dict[str, Array]:
    names = ("Scale", "Bias", "Mean")
    read = {name: values(rng, "float", (count,)) for name in names}
    return {**read, "Var": np.abs(values(rng, "float", (count,)))}


def batch_normalization(rng: Rng) -> Case:
    of = shape(rng, 2, 5, 4)
    along = int(rng.choice([1, len(of) - 1]))
    read = {"Src": values(rng, "float", of), **_parameters(rng, of[along])}
    results = [TensorType("float", of)]
    attributes = {"ChannelIdx": along, "Epsilon": 1e-5, "Momentum": 0.9}
    return case(oracles.batch_normalization, "batchnormalization", read, results, **attributes)


def batch_normalization_int8(rng: Rng) -> Case:
    of, at, to = shape(rng, 3, 5, 4), grid(rng), grid(rng)
    along = int(rng.choice([1, len(of) - 1]))
    read = {"Src": values(rng, "i8", of), **_parameters(rng, of[along])}

    def oracle(v, shapes, **a):
        return oracles.batch_normalization(v, shapes, **a, grids=(at, to))

    attributes = {"ChannelIdx": along, "Epsilon": 1e-3, "Momentum": 0.9}
    results = [kind("i8", of, to)]
    return case(oracle, "batchnormalization", read, results, "i8", at, **attributes)


def layer_normalization(rng: Rng) -> Case:
    of = shape(rng, 2, 4)
    last = of[-int(rng.integers(1, len(of))) :]
    read = {
        "Src": values(rng, "float", of),
        "Scale": values(rng, "float", last),
        "Bias": values(rng, "float", last),
    }
    results = [TensorType("float", of)]
    return case(oracles.layer_normalization, "layernormalization", read, results, Epsilon=1e-5)


def adaptive_avg_pool(rng: Rng) -> Case:
    elem, at, to = rng.choice(["float", "i8"]), grid(rng), grid(rng)
    n, h, w, c = (int(i) for i in rng.integers(1, 8, 4))
    out = (n, int(rng.integers(1, h + 1)), int(rng.integers(1, w + 1)), c)

    def oracle(v, shapes):
        return oracles.adaptive_avg_pool(v, shapes, (at, to) if elem == "i8" else None)

    read = {"Src": values(rng, elem, (n, h, w, c))}
    return case(oracle, "adaptiveavgpool", read, [kind(elem, out, to)], elem, at)


def _volume(rng: Rng) -> tuple[dict[str, Any], tuple[int, ...], tuple[int, ...]]:
    kernels = tuple(int(k) for k in rng.integers(1, 3, 3))
    strides = tuple(int(k) for k in rng.integers(1, 3, 3))
    pads = tuple(int(rng.integers(0, kernels[i // 2])) for i in range(6))
    source = tuple(int(rng.integers(k, k + 3)) for k in kernels)
    outs = tuple(
        (n + pads[2 * d] + pads[2 * d + 1] - kernels[d]) // strides[d] + 1
        for d, n in enumerate(source)
    )
    return {"Kernels": kernels, "Strides": strides, "Pads": pads}, source, outs


def convolution_3d(rng: Rng) -> Case:
    elem = str(rng.choice(["float", "i8", "i16"]))
    attributes, source, outs = _volume(rng)
    group, depth, per_group = (int(i) for i in rng.integers(1, 3, 3))
    grids = [grid(rng, elem), grid(rng, elem), (2.0**-9, 5), grid(rng, elem)]
    filters = values(rng, elem, (group * per_group, *attributes["Kernels"], depth))
    if elem == "float":
        bias = values(rng, "float", (group * per_group,))
        bias_type = plain(bias)
    else:
        bias = rng.integers(-9999, 9999, group * per_group).astype(np.int32)
        bias_type = quantized("i32", bias.shape, *grids[2])
    x = values(rng, elem, (2, *source, group * depth))
    types = (
        kind(elem, (2, *outs, group * per_group), grids[3]),
        kind(elem, x.shape, grids[0]),
        kind(elem, filters.shape, grids[1]),
        bias_type,
    )
    read = {"Src": x, "Filter": filters, "Bias": bias}
    attributes["Group"] = group
    it = OneInstruction("convolution3d", types, read, attributes)
    more = {} if elem == "float" else {"grids": grids, "limits": LIMITS[elem]}
    return Case(it, oracles.convolution_3d(read, [types[0].shape], **attributes, **more))


def avg_pool_3d(rng: Rng) -> Case:
    elem, at, to = rng.choice(["float", "i8"]), grid(rng), grid(rng)
    attributes, source, outs = _volume(rng)
    attributes |= {"Layout": 2, "CountIncludePads": int(rng.integers(2))}
    x = values(rng, elem, (2, *source, 2))

    def oracle(v, shapes, **a):
        return oracles.avg_pool_3d(v, shapes, **a, grids=(at, to) if elem == "i8" else None)

    results = [kind(elem, (2, *outs, 2), to)]
    return case(oracle, "avgpool", {"Src": x}, results, elem, at, **attributes)


def conv_transpose(rng: Rng) -> Case:
    group, per_group, depth = (int(i) for i in rng.integers(1, 3, 3))
    kernels = tuple(int(k) for k in rng.integers(1, 4, 2))
    strides = tuple(int(rng.integers(1, k + 1)) for k in kernels)
    dilation = tuple(int(k) for k in rng.integers(1, 3, 2))
    pads = tuple(int(k) for k in rng.integers(0, 2, 4))
    size = tuple(int(k) for k in rng.integers(3, 6, 2))
    least = [
        (n - 1) * s + (k - 1) * d + 1 - p - q
        for n, s, k, d, p, q in zip(
            size, strides, kernels, dilation, pads[:2], pads[2:], strict=True
        )
    ]
    out = (2, *(n + int(rng.integers(2)) for n in least), group * per_group)
    read = {
        "Src": values(rng, "float", (2, *size, group * depth)),
        "Filter": values(rng, "float", (per_group, *kernels, group * depth)),
        "Bias": values(rng, "float", (group * per_group,)),
    }
    attributes = {
        "Kernels": kernels, "Strides": strides, "Pads": pads, "Group": group, "Dilation": dilation
    }  # fmt: skip
    results = [TensorType("float", out)]
    return case(oracles.conv_transpose, "convtranspose", read, results, **attributes)


def log_softmax(rng: Rng) -> Case:
    x = values(rng, "float", shape(rng, 2, 2, 6))

    def oracle(v, shapes):
        rows = v["Src"].astype(float)
        lower = rows - rows.max(axis=1, keepdims=True)
        return [lower - np.log(np.exp(lower).sum(axis=1, keepdims=True))]

    return case(oracle, "logsoftmax", {"Src": x}, [plain(x)], near=2e-6)


def convert(rng: Rng) -> Case:
    elem, to = rng.choice(["float", "index32", "index64", "bool"], 2)
    x = values(rng, elem, shape(rng))
    out = TensorType(to, x.shape)

    def oracle(v, shapes):
        cast = {"float": float, "bool": bool}.get(to, int)
        flat = [cast(i) for i in v["Input"].reshape(-1).tolist()]
        return [np.array(flat, out.dtype).reshape(x.shape)]

    return case(oracle, "convertto", {"Input": x}, [out])


def sign(x: float) -> float:
    return math.copysign(1.0, x) if x else 0.0


UNARY: dict[str, Callable[[float], float]] = {
    "elementneg": lambda x: -x,
    "elementabs": abs,
    "elementsign": sign,
    "elementfloor": lambda x: float(math.floor(x)),
    "elementceil": lambda x: float(math.ceil(x)),
    "elementtruncate": lambda x: float(math.trunc(x)),
    "elementround": lambda x: float(round(x)),
    "elementsqrt": lambda x: math.sqrt(x) if x >= 0 else math.nan,
    "elementrsqrt": lambda x: F(1) / np.sqrt(F(x)) if x > 0 else (math.inf if x == 0 else math.nan),
    "elementreciprocal": lambda x: 1 / x if x else math.copysign(math.inf, x),
    "elementsin": math.sin,
    "elementcos": math.cos,
    "elementasin": lambda x: math.asin(x) if abs(x) <= 1 else math.nan,
    "elementacos": lambda x: math.acos(x) if abs(x) <= 1 else math.nan,
    "elementatan": math.atan,
    "elementerf": math.erf,
}
"""Functions of real elements, which quantized ones take through float32."""
FLOAT_ONLY: dict[str, Callable[[float], float]] = {
    "elementexp": math.exp,
    "elementlog": lambda x: math.log(x) if x > 0 else math.nan,
    "softplus": lambda x: math.log(F(1) + F(math.exp(x))),
    "hardswish": lambda x: F(F(F(x) * min(max(F(F(x) + F(3)), F(0)), F(6))) * F(0.166666667)),
}
LOGIC: dict[str, Callable[[Any, Any], Any]] = {
    "elementand": lambda a, b: a and b,
    "elementor": lambda a, b: a or b,
    "elementxor": lambda a, b: a != b,
}
BITS: dict[str, Callable[[Any, Any], Any]] = {
    "elementbitwiseand": lambda a, b: a & b,
    "elementbitwiseor": lambda a, b: a | b,
    "elementbitwisexor": lambda a, b: a ^ b,
}
UNITS = {"elementexp": 1, "softplus": 1}
"""By how much an exponential as glibc has it may be beside the correctly rounded one."""


def elementwise(rng: Rng, opcode: str, elem: str, function: Callable[..., Any]) -> Case:
    """An operation whose oracle is a function of elements."""
    of = shape(rng)
    at, to = grid(rng, elem), grid(rng, elem)
    roles = [role.name for role in OPCODES[opcode].operands[1:]]
    read = {name: values(rng, elem, of) for name in roles}
    result = kind(elem, of, to)
    if opcode == "elementpow" and elem == "float":
        read["LHS"] = np.abs(read["LHS"])

    def oracle(v, shapes):
        one = function
        if elem in LIMITS:
            one = oracles.quantized(function, [*([at] * len(roles)), to], LIMITS[elem])
        flat = [v[name].reshape(-1).tolist() for name in roles]
        results = [one(*elements) for elements in zip(*flat, strict=True)]
        return [np.array(results).astype(result.dtype).reshape(of)]

    return case(oracle, opcode, read, [result], elem, at, UNITS.get(opcode, 0))


def power(x: float, y: float) -> float:
    """``pow`` of C."""
    try:
        return math.pow(x, y)
    except OverflowError:
        return math.inf
    except ValueError:  # zero to a negative power, or a negative number to a broken one
        return math.nan if x else math.inf


def modulo(rng: Rng) -> Case:
    elem, divisor, follow = rng.choice(INDEX), int(rng.integers(1, 9)), int(rng.integers(2))
    x = values(rng, elem, shape(rng))

    def oracle(v, shapes, Divisor, SignFollowDivisor):
        rest = [int(math.fmod(i, Divisor)) for i in v["Src"].reshape(-1).tolist()]
        rest = [r + Divisor if SignFollowDivisor and r < 0 else r for r in rest]
        return [np.array(rest).reshape(x.shape)]

    attributes = {"Divisor": divisor, "SignFollowDivisor": follow}
    return case(oracle, "modulo", {"Src": x}, [plain(x)], **attributes)


def by_number(rng: Rng, opcode: str) -> Case:
    x = values(rng, "float", shape(rng))

    def oracle(v, shapes, LHS):
        number, y = F(LHS), v["RHS"]
        return [number * y if opcode == "elementmulconst" else number - y]

    return case(oracle, opcode, {"RHS": x}, [plain(x)], LHS=1.7)


def nan_to_num(rng: Rng) -> Case:
    x = values(rng, "float", shape(rng))
    attributes = {"Nan": 1.5, "PosInf": 9.0, "NegInf": -9.0}
    return case(lambda v, s, **a: [v["Src"]], "nantonum", {"Src": x}, [plain(x)], **attributes)


def is_nan(rng: Rng) -> Case:
    x = values(rng, "float", shape(rng))
    results = [TensorType("bool", x.shape)]
    return case(lambda v, s: [np.zeros(x.shape, bool)], "elementisnan", {"Src": x}, results)


CASES: dict[str, Callable[[Rng], Case]] = {
    "topk": top_k,
    "argmax": lambda rng: arg(rng, "argmax"),
    "argmin": lambda rng: arg(rng, "argmin"),
    "gather": gather,
    "gathernd": gather_nd,
    "gatherelements": gather_elements,
    "gatherranges": gather_ranges,
    "scatterdata": scatter,
    "nonzero": non_zero,
    "bucketize": bucketize,
    "batchonehot": batch_one_hot,
    "batchedreducemin": lambda rng: reduce_extreme(rng, "batchedreducemin"),
    "batchedreducemax": lambda rng: reduce_extreme(rng, "batchedreducemax"),
    "batchedreduceprod": reduce_prod,
    "cumsum": cum_sum,
    "flip": flip,
    "spacetodepth": space_to_depth,
    "convertto": convert,
    "resizebilinear": resize_bilinear,
    "batchmatmul": batch_matmul,
    "logsoftmax": log_softmax,
    "batchnormalization": batch_normalization,
    "batchnormalization i8": batch_normalization_int8,
    "layernormalization": layer_normalization,
    "adaptiveavgpool": adaptive_avg_pool,
    "convolution3d": convolution_3d,
    "avgpool": avg_pool_3d,
    "convtranspose": conv_transpose,
    "modulo": modulo,
    "elementmulconst": lambda rng: by_number(rng, "elementmulconst"),
    "elementrsubconst": lambda rng: by_number(rng, "elementrsubconst"),
    "nantonum": nan_to_num,
    "elementisnan": is_nan,
}


def _add(opcode: str, elems: str, function: Callable[..., Any]) -> None:
    for elem in elems.split():
        name = opcode if elem == elems.split()[0] else f"{opcode} {elem}"
        CASES[name] = lambda rng, e=elem: elementwise(rng, opcode, e, function)


for opcode, function in UNARY.items():
    _add(opcode, "float i8 i16", function)
_add("elementneg index32", "index32", lambda x: -x)
for opcode, function in FLOAT_ONLY.items():
    _add(opcode, "float", function)
_add("elementpow", "float i8", power)
_add("elementfmod", "float index32 index64", lambda x, y: math.fmod(x, y) if y else 0)
_add("elementnot", "bool", lambda x: not x)
_add("elementbitwisenot", "index32 index64", lambda x: ~x)
for opcode, function in LOGIC.items():
    _add(opcode, "bool", function)
for opcode, function in BITS.items():
    _add(opcode, "index32 index64 bool", function)
CASES["elementneg index32"] = lambda rng: elementwise(rng, "elementneg", "index32", lambda x: -x)


def on_one_grid(rng: Rng, opcode: str, function: Callable[..., int], **attributes: Any) -> Case:
    """An operation whose oracle is a function of integers with offset 3 and scale 0.25."""
    of = shape(rng)
    roles = [role.name for role in OPCODES[opcode].operands[1:]]
    read = {name: values(rng, "i8", of) for name in roles}

    def oracle(v, shapes, **_):
        elements = zip(*(v[name].reshape(-1).tolist() for name in roles), strict=True)
        return [np.array([function(*each) for each in elements])]

    result = kind("i8", of, (0.25, 3))
    return case(oracle, opcode, read, [result], "i8", **attributes)


ON_THE_DEVICE: dict[str, Callable[[Rng], Case]] = {
    "relu": lambda rng: on_one_grid(rng, "relu", lambda q: max(q, 3)),
    "clip": lambda rng: on_one_grid(rng, "clip", lambda q: min(max(q, -5), 11), Min=-2.0, Max=2.0),
    "cpumaxsplat": lambda rng: on_one_grid(rng, "cpumaxsplat", lambda q: max(q, 7), SplatValue=1.0),
    "copy": lambda rng: on_one_grid(rng, "copy", lambda q: q),
    "elementadd": lambda rng: on_one_grid(
        rng, "elementadd", lambda q, r: min(max(q + r - 3, -128), 127)
    ),
    "elementmax": lambda rng: on_one_grid(rng, "elementmax", max),
    "elementmin": lambda rng: on_one_grid(rng, "elementmin", min),
}
"""Opcode -> a case, on one core."""
