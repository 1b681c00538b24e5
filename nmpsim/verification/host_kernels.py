"""Differences that come from the kernels of a reference runtime on the present processor.

On x86 without VNNI, ONNX Runtime multiplies uint8 activations by int8 weights with ``vpmaddubsw``,
which adds the products of two neighboring values and saturates the sum to 16 bits.
"""

from __future__ import annotations

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.analysis.hypotheses.layer import IsolatedLayer
from nmpsim.analysis.program import make_bundle_program
from nmpsim.analysis.reduce.crop import separate_tensors
from nmpsim.analysis.reduce.extract import extract_layers
from nmpsim.arrays import Array, Arrays
from nmpsim.bundle import Bundle
from nmpsim.diagnostics import UserError
from nmpsim.kernels.hostops.windows import SlidingWindow

SATURATED_PAIRS = (
    "pairs saturate in the runtime's kernel on this host (no VNNI): with sums of two products"
    " limited to 16 bits, all elements are equal"
)
_PAIR_LIMITS = (-32768, 32767)


def explains_by_pairs(
    bundle: Bundle, index: int, inputs: Arrays, outputs: Arrays, actual: Array, expected: Array
) -> bool:
    """Return whether saturated sums of two products explain all wrong elements of a layer.

    Parameters
    ----------
    bundle : Bundle
        The program, with its LIR.
    index : int
        Index of the layer.
    inputs, outputs : mapping of str to array
        Stored inputs of the program by name, and stored outputs of layers by the keys of saved
        layers.
    actual, expected : array of int8
        Outputs of the program's layer and of the reference for the same inputs.
    """
    layers = bundle.metadata.layers
    if not bundle.debug or actual.dtype != np.int8 or expected.dtype != np.int8:
        return False
    program = make_bundle_program(bundle)
    try:
        part = separate_tensors(
            extract_layers(program.module, layers, range(index, index + 1), inputs, dict(outputs))
        )
    except (UserError, KeyError):
        return False
    layer = IsolatedLayer(attrs.evolve(program, module=part.module), part.inputs)
    alone = layer.remove_activations()
    loss, real = compute_pair_loss(alone), alone.compute_real()
    if loss is None or real is None or loss.shape != actual.shape:
        return False
    has_activation = alone.program.module != layer.program.module
    low = int(actual.min()) if has_activation else -128
    estimate = np.clip(np.rint(real + loss), low, 127)
    saturated = loss != 0
    return bool(saturated.any() and np.array_equal(np.where(saturated, estimate, actual), expected))


def compute_pair_loss(layer: IsolatedLayer) -> npt.NDArray[np.float64] | None:
    """Compute the error of saturated pair sums in each result, or None for unsupported layers.

    Returns None for a layer other than a convolution of one group or a fully connected layer of
    8 bits with constant weights.
    """
    source, weights = layer.find_operand("Src", "Batch"), layer.find_constant("Filter", "Weights")
    if source is None or weights is None or layer.get_attribute("Group", 1) != 1:
        return None
    values, factors = layer.get_values(source), layer.get_values(weights)
    quants = [layer.get_type(name).quant for name in (source, weights, layer.output)]
    if values.dtype != np.int8 or factors.dtype != np.int8 or None in quants:
        return None
    source_quant, weights_quant, result_quant = quants
    assert source_quant is not None and weights_quant is not None and result_quant is not None
    table = layer.find_constant("FilterScales", "Scales")
    scales = weights_quant.scale if table is None else layer.get_values(table).astype(np.float64)
    if factors.ndim == 4:
        rows, matrix = _list_windows(layer, values, source_quant.offset), factors
    else:
        rows = values.reshape(len(values), -1)
        matrix = factors if table is not None else factors.T
    shape = (*rows.shape[:-1], len(matrix))
    loss = sum_pair_loss(
        rows.reshape(-1, rows.shape[-1]).astype(np.int64) + 128,
        matrix.reshape(len(matrix), -1).astype(np.int64),
    ).reshape(shape)
    return np.asarray(loss * (source_quant.scale * scales / result_quant.scale), np.float64)


def _list_windows(layer: IsolatedLayer, values: Array, offset: int) -> Array:
    """Return the window of each result of a convolution as a row [..., kernel elements]."""
    window = SlidingWindow.from_attributes(layer.operation.attributes)
    top, left, bottom, right = layer.get_attribute("Pads")
    padded = np.pad(values, ((0, 0), (top, bottom), (left, right), (0, 0)), constant_values=offset)
    spans = [(k - 1) * d + 1 for k, d in zip(window.kernel, window.dilation, strict=True)]
    views = np.lib.stride_tricks.sliding_window_view(padded, spans, (1, 2))
    (down, right_step), (rows, columns) = window.strides, window.dilation
    views = views[:, ::down, ::right_step, :, ::rows, ::columns]
    ordered = np.moveaxis(views, 3, -1)
    return ordered.reshape(*ordered.shape[:3], -1)


def sum_pair_loss(
    rows: npt.NDArray[np.int64], matrix: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Sum pairs of products with saturation to 16 bits, and subtract ``rows @ matrix.T``.

    Parameters
    ----------
    rows : array of int [M, K]
        Activations from 0 to 255.
    matrix : array of int [N, K]
        Weights from -128 to 127.
    """
    loss = np.zeros((len(rows), len(matrix)), np.int64)
    for first in range(0, rows.shape[1], 2):
        pairs = rows[:, first : first + 2] @ matrix[:, first : first + 2].T
        loss += np.clip(pairs, *_PAIR_LIMITS) - pairs
    return loss
