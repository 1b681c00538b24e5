"""Batch norms of a float model, folded into the convolutions before them, as Glow folds them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
Values: TypeAlias = Callable[[str], Array | None]
"""The values of a tensor by its name; None if the model computes them."""

FOLDED = " with its batch norm"
"""What a folded array's name ends with; before it the name that the unfolded one has."""


def folded_arrays(graph: Any, values: Values) -> Iterator[tuple[str, Array]]:
    """Filter and bias of each convolution of an ONNX graph that only a batch norm reads.

    float64; a convolution without a bias gives its folded one the name of the batch norm's result.
    """
    readers = Counter(name for node in graph.node for name in node.input)
    readers.update(output.name for output in graph.output)
    convolutions = {node.output[0]: node for node in graph.node if node.op_type == "Conv"}
    for node in graph.node:
        convolution = convolutions.get(node.input[0]) if node.input else None
        if node.op_type != "BatchNormalization" or convolution is None:
            continue
        if readers[node.input[0]] == 1 and readers[convolution.input[1]] == 1:
            yield from _fold(node, convolution, values)


def _fold(node: Any, convolution: Any, values: Values) -> Iterator[tuple[str, Array]]:
    """``(w * x + b - mean) * gamma / sqrt(variance + epsilon) + beta``, as one convolution."""
    known = [values(name) for name in (convolution.input[1], *node.input[1:5])]
    if any(array is None for array in known):
        return
    filter_, gamma, beta, mean, variance = (np.asarray(array, np.float64) for array in known)
    own_bias = convolution.input[2] if len(convolution.input) > 2 else ""
    bias = values(own_bias) if own_bias else np.zeros_like(mean)
    epsilon = next((one.f for one in node.attribute if one.name == "epsilon"), 1e-5)
    factors = gamma / np.sqrt(variance + epsilon)
    yield convolution.input[1] + FOLDED, filter_ * factors.reshape(-1, *[1] * (filter_.ndim - 1))
    if bias is not None:
        yield (own_bias or node.output[0]) + FOLDED, (bias - mean) * factors + beta


def forms_of(name: str, arrays: Mapping[str, Array]) -> list[str]:
    """An array as the model has it and, where it was folded, folded: the names that there are."""
    return [form for form in (name, name + FOLDED) if form in arrays]
