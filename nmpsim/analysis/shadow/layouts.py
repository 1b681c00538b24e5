"""The ways in which the weights of a float model may lie in the LIR's constants.

Glow brings convolution filters from OIHW to OHWI, transposes the weights of fully connected
layers where the model has them the other way round, and permutes those that met a flattened NCHW
activation, because its own activations are NHWC.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

AS_IS = "as it is"
_SAMPLES = 4096
"""Elements on which layouts are compared."""

Array = npt.NDArray[Any]


@attrs.frozen(eq=False)
class Layout:
    """One way to bring an array into the shape of a constant."""

    name: str
    base: Array
    """The array, reshaped or transposed."""
    axis: int = 0
    order: Array | None = None
    """Indices along ``axis`` in the order in which the constant has them; None as they are."""

    def values(self) -> npt.NDArray[np.float64]:
        """The whole array in this layout."""
        moved = self.base if self.order is None else np.take(self.base, self.order, self.axis)
        return np.asarray(moved, np.float64)

    def sample(self, places: tuple[Array, ...]) -> Array:
        """The elements at these places, one array of indices a dimension."""
        if self.order is not None:
            moved = self.order[places[self.axis]]
            places = (*places[: self.axis], moved, *places[self.axis + 1 :])
        elements: Array = self.base[places]
        return elements


def best_layout(array: Array, real: npt.NDArray[np.float64]) -> Layout | None:
    """The layout of ``array`` that is nearest to ``real``; the first of equals.

    Args:
        array: values of the float model, any shape.
        real: what the constant stands for, in the LIR's shape.

    Returns:
        None if no layout has the constant's shape.
    """
    flat = np.arange(real.size)
    if real.size > _SAMPLES:
        flat = np.random.default_rng(0).choice(real.size, _SAMPLES, replace=False)
    places = np.unravel_index(flat, real.shape)
    wanted = real[places]
    return min(
        layouts(array, real.shape),
        key=lambda layout: float(np.square(layout.sample(places) - wanted).sum()),
        default=None,
    )


def layouts(array: Array, shape: tuple[int, ...]) -> Iterator[Layout]:
    """Every layout that gives ``shape``, the plainest first."""
    if array.shape == shape:
        yield Layout(AS_IS, array)
    if array.ndim == len(shape) == 4 and array.transpose(0, 2, 3, 1).shape == shape:
        yield Layout("OIHW to OHWI", array.transpose(0, 2, 3, 1))
    if array.ndim == len(shape) == 2:
        if array.T.shape == shape:
            yield Layout("transposed", array.T)
        for name, matrix in (("", array), ("transposed, ", array.T)):
            if matrix.shape == shape:
                yield from _permuted(name, matrix)
    if array.shape != shape and _without_ones(array.shape) == _without_ones(shape):
        yield Layout("reshaped", array.reshape(shape))


def _permuted(name: str, matrix: Array) -> Iterator[Layout]:
    """Inputs counted channel by channel, counted pixel by pixel instead."""
    for axis, of in ((0, "rows"), (1, "columns")):
        size = matrix.shape[axis]
        for channels in (d for d in range(2, size // 2 + 1) if size % d == 0):
            order = np.arange(size).reshape(channels, -1).T.reshape(-1)
            text = f"{name}{of} from NCHW to NHWC with {channels} channels"
            yield Layout(text, matrix, axis, order)


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(dim for dim in shape if dim != 1)
