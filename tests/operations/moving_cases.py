"""Cases of operations that choose, move or count elements."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import operation_oracles as oracles
from one_instruction import plain_type
from operation_case import INDEX, MOVED, Case, F, Rng, case, kind, shape, ties, values

from nmpsim.lir.nodes import TensorType


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
    results = [kind(elem, (int(counts.sum()),), (0.25, 3)), plain_type(ranges[:, 0, 0])]
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
}
