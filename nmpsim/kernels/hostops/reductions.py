"""Products, extremes and running sums along dimensions."""

from __future__ import annotations

import numpy as np

from nmpsim.kernels.hostops.tensors import AnyArray, Implementation, wrap_array_function


@wrap_array_function
def batched_reduce_prod(batch: AnyArray, *, axis: int) -> AnyArray:
    """Compute the product of the elements along an axis, with wraparound of integers."""
    products = np.multiply.accumulate(batch, axis=axis, dtype=batch.dtype)
    return np.asarray(np.take(products, -1, axis=axis))


def _reduction(ufunc: np.ufunc, worst: str) -> Implementation:
    """Return a minimum or maximum over Axes; NaN is ignored, as C++'s min and max do."""

    @wrap_array_function
    def run(batch: AnyArray, *, axes: tuple[int, ...]) -> AnyArray:
        start = np.inf if worst == "max" else -np.inf
        if batch.dtype.kind != "f":
            start = getattr(np.iinfo(batch.dtype), worst)
        reduced: AnyArray = ufunc.reduce(batch, axis=axes, initial=start)
        return reduced

    return run


batched_reduce_min, batched_reduce_max = _reduction(np.fmin, "max"), _reduction(np.fmax, "min")


@wrap_array_function
def cum_sum(source: AnyArray, *, dim: int, exclusive: int, reverse: int) -> AnyArray:
    """Compute cumulative sums along a dimension: inclusive or exclusive, forward or reverse."""
    x = np.moveaxis(source, dim, 0)
    x = x[::-1] if reverse else x
    sums = np.cumsum(np.concatenate([np.zeros_like(x[:1]), x]), axis=0, dtype=x.dtype)
    sums = sums[:-1] if exclusive else sums[1:]
    return np.moveaxis(sums[::-1] if reverse else sums, 0, dim)
