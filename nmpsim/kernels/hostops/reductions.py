"""Products, extremes and running sums along dimensions."""

from __future__ import annotations

import numpy as np

from nmpsim.kernels.hostops.tensors import (
    Attributes,
    HostResult,
    HostTensor,
    Implementation,
    store,
)


def batched_reduce_prod(dest: HostTensor, batch: HostTensor, attributes: Attributes) -> HostResult:
    """Multiply the elements of Batch along Axis, in order; integers wrap."""
    axis = int(attributes["Axis"])
    products = np.multiply.accumulate(batch.values, axis=axis, dtype=batch.dtype)
    return store(np.take(products, -1, axis=axis), dest)


def _reduction(ufunc: np.ufunc, worst: str) -> Implementation:
    """Return a minimum or maximum over Axes; NaN is ignored, as C++'s min and max do."""

    def run(dest: HostTensor, batch: HostTensor, attributes: Attributes) -> HostResult:
        axes = tuple(int(axis) for axis in attributes["Axes"])
        infinity = np.inf if worst == "max" else -np.inf
        start = infinity if batch.is_float else getattr(np.iinfo(batch.dtype), worst)
        return store(ufunc.reduce(batch.values, axis=axes, initial=start), dest)

    return run


batched_reduce_min, batched_reduce_max = _reduction(np.fmin, "max"), _reduction(np.fmax, "min")


def cum_sum(dest: HostTensor, source: HostTensor, attributes: Attributes) -> HostResult:
    """Compute running sums along Dim, in order; Exclusive leaves out the element itself."""
    axis = int(attributes["Dim"]) % len(source.shape)
    x = np.moveaxis(source.values, axis, 0)
    x = x[::-1] if attributes["Reverse"] else x
    sums = np.cumsum(np.concatenate([np.zeros_like(x[:1]), x]), axis=0, dtype=x.dtype)
    sums = sums[:-1] if attributes["Exclusive"] else sums[1:]
    sums = sums[::-1] if attributes["Reverse"] else sums
    return store(np.moveaxis(sums, 0, axis), dest)
