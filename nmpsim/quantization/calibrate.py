"""Calibration: the range of each tensor over samples of the float program's inputs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from nmpsim.arrays import Array, Arrays, Shape
from nmpsim.diagnostics import did_you_mean, fail, quote
from nmpsim.interpreter import RealProgram
from nmpsim.lir.constraints import format_shape
from nmpsim.lir.nodes import Instruction, TensorType
from nmpsim.lir.opcodes import IN
from nmpsim.quantization.graph import FloatGraph, FloatNode, FloatValue
from nmpsim.quantization.profile import ValueRange, check_finite
from nmpsim.quantization.ranges import ValueHistogram

Sample = dict[str, Array]
"""Values of all inputs, in their shapes."""

_PREFIX = "input/"


def split_samples(
    inputs: Mapping[str, TensorType], arrays: Mapping[str, npt.ArrayLike]
) -> list[Sample]:
    """Split calibration arrays into samples and return each sample's input values by name.

    Parameters
    ----------
    inputs
        Type of each input.
    arrays
        For each input, under its name or ``input/NAME``, any number of samples: an array whose
        first dimension counts them, in front of the input's dimensions or in place of the first.
        The name may be empty for the only input. Other arrays are ignored.

    Raises
    ------
    UserError
        INPUT001 for a missing input; INPUT002 for an array that does not fit, is empty or holds
        what is not finite, and where the inputs differ in their number of samples.
    """
    only = len(inputs) == 1
    split = {name: _split(name, type_, _find(name, arrays, only)) for name, type_ in inputs.items()}
    counts = {name: len(samples) for name, samples in split.items()}
    if len(set(counts.values())) > 1:
        raise fail(
            "INPUT002",
            "the calibration inputs differ in their number of samples",
            found=", ".join(f"{count} for {name!r}" for name, count in counts.items()),
            expected="the same number of samples for each input",
        )
    if not split:  # a program without inputs runs once
        return [{}]
    return [dict(zip(split, values, strict=True)) for values in zip(*split.values(), strict=True)]


def stack_examples(inputs: Mapping[str, TensorType], examples: Iterable[Any]) -> dict[str, Array]:
    """Stack calibration examples and return an array [samples, ...] by input name.

    Parameters
    ----------
    inputs
        Type of each input, in their order.
    examples
        Arrays or PyTorch's tensors, or tuples with one for each input; each may hold several
        samples.

    Raises
    ------
    UserError
        INPUT001 for an example with more or fewer tensors, INPUT002 as in :func:`split_samples`.
    """
    samples: list[Sample] = []
    for number, example in enumerate(examples):
        values = example if isinstance(example, (tuple, list)) else (example,)
        if len(values) != len(inputs):
            raise fail(
                "INPUT001",
                f"calibration example {number} does not have a tensor for each input",
                found=f"{len(values)} tensors",
                expected=f"{len(inputs)} tensors: {', '.join(map(quote, inputs))}",
                hint="Pass only the inputs of labeled batches: (x for x, _ in loader).",
            )
        arrays = zip(inputs, map(_array_of, values), strict=True)
        samples += split_samples(inputs, dict(arrays))
    if not samples:
        message, expected = "there are no calibration examples", "at least one example"
        raise fail("INPUT001", message, found="0 examples", expected=expected)
    return {name: np.stack([sample[name] for sample in samples]) for name in inputs}


def _array_of(value: Any) -> Array:
    """Return an array, or the values of a PyTorch tensor."""
    return np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)


def _find(name: str, arrays: Mapping[str, npt.ArrayLike], only: bool) -> Array:
    for key in (name, _PREFIX + name, *([""] if only else [])):
        if key in arrays:
            return np.asarray(arrays[key])
    known = [key.removeprefix(_PREFIX) for key in arrays]
    raise fail(
        "INPUT001",
        f"there are no calibration values for input {name!r}",
        found=f"arrays {', '.join(map(quote, known[:8]))}" if known else "no arrays",
        expected=f"an array {quote(name)}",
        hint=did_you_mean(name, known),
    )


def _split(name: str, type_: TensorType, array: Array) -> Sequence[Array]:
    """Return the samples in an array for one input."""
    subject = f"the calibration values for input {name!r}"
    if array.dtype.kind not in "biuf":
        found, expected = f"type {array.dtype}"[:80], "numbers, such as float32"
        raise fail("INPUT002", f"{subject} are not numeric", found=found, expected=expected)
    samples = _arranged(array, type_.shape)
    if samples is None or array.size == 0:
        raise fail(
            "INPUT002",
            f"{subject} " + ("have the wrong shape" if array.size else "are empty"),
            found=f"shape {format_shape(array.shape)}",
            expected=f"samples of shape {format_shape(type_.shape)}",
        )
    with np.errstate(over="ignore", invalid="ignore"):  # told below
        values = samples.astype(type_.dtype)
    check_finite(values, "INPUT002", f"{subject} are not finite")
    return list(values)


def _arranged(array: Array, shape: Shape) -> Array | None:
    """Return the array as [samples, *shape], or None if its shape does not fit."""
    if array.shape == shape or array.shape[1:] == shape:
        return array.reshape(-1, *shape)
    one_without_batch = shape[:1] == (1,) and array.shape == shape[1:]
    batches = array.shape[1:] == shape[1:] and array.shape[:1] and array.shape[0] % shape[0] == 0
    return array.reshape(-1, *shape) if one_without_batch or (batches and shape) else None


_PRODUCTS = ("fullyconnected", "matmul")


Ranges = Mapping[str, ValueRange]
"""Range of each input by name, and of each result by instruction and operand."""


def calibrate(graph: FloatGraph, samples: Iterable[Arrays]) -> Ranges:
    """Run a float program on samples and return the range of each input and result.

    It runs in float32 in the order of Glow's Interpreter, so the ranges equal those of a profile
    that Glow records.

    Raises
    ------
    UserError
        QUANT002 if a result has infinite values or NaN.
    """
    found: dict[str, ValueRange] = {}
    for key, array in _execute(graph, samples):
        range_ = ValueRange.from_values(array)
        found[key] = found[key].union(range_) if key in found else range_
    return found


def count_values(
    graph: FloatGraph, samples: Iterable[Arrays], ranges: Ranges
) -> dict[str, ValueHistogram]:
    """Run a float program again on samples and return the histogram of each input and result."""
    found = {key: ValueHistogram.from_range(range_) for key, range_ in ranges.items()}
    for key, array in _execute(graph, samples):
        found[key].add(array)
    return found


def _execute(graph: FloatGraph, samples: Iterable[Arrays]) -> Iterator[tuple[str, Array]]:
    """Run a float program on samples; yield the key and the values of each input and result."""
    program = RealProgram(
        graph.module, hidden_relu=False, real=np.float32, sum_orders=find_sum_orders(graph)
    )
    for sample in samples:
        yield from sample.items()
        for instruction, operand, array in program.execute(sample):
            if array.dtype == np.float32:
                check_finite(
                    array,
                    "QUANT002",
                    f"%{instruction.name} of the float program has values that are not finite",
                    instruction.span.place(graph.module.file),
                    "Check the weights for infinities and NaNs.",
                )
                yield _key(instruction, operand), array


def find_sum_orders(graph: FloatGraph) -> dict[str, npt.NDArray[np.intp]]:
    """Return Glow's order of summation for products over flattened images, by instruction name.

    Glow records profiles before it changes a channels-first network to its own layout, channels
    last, so the products of such a network are summed in channels-first order.
    """
    if not _is_channels_first(graph):
        return {}
    orders: dict[str, npt.NDArray[np.intp]] = {}
    for node in graph.nodes:
        if node.opcode in _PRODUCTS and (image := _flattened(graph, node.sources[0])):
            order = np.arange(math.prod(image)).reshape(image).transpose(2, 0, 1)
            orders[node.instruction.name] = order.reshape(-1)
    return orders


def _is_channels_first(graph: FloatGraph) -> bool:
    """Return whether an input is transposed to channels last before any other use."""
    return any(
        node.sources and node.sources[0] in graph.inputs and _turns(node) for node in graph.nodes
    )


def _turns(node: FloatNode) -> bool:
    """Return whether a node moves channels to the end; with one channel a view does."""
    if node.opcode == "transpose":
        return node.instruction.attributes["Shuffle"] == (0, 2, 3, 1)
    batch, *image = node.sources[0].type.shape
    return (
        node.opcode == "tensorview"
        and len(image) == 3
        and image[0] == 1
        and node.results[0].type.shape == (batch, *image[1:], 1)
    )


def _flattened(graph: FloatGraph, value: FloatValue) -> Shape:
    """Return height, width and channels of images that a value flattens, or ()."""
    source, _ = graph.views.get(value, (value, 0))
    batch, *image = source.type.shape
    is_flat = len(image) == 3 and value.type.shape == (batch, math.prod(image))
    return tuple(image) if is_flat else ()


def _key(instruction: Instruction, operand: str) -> str:
    return f"{instruction.number}:{operand}"


def group_by_value(graph: FloatGraph, found: Ranges) -> dict[FloatValue, ValueRange]:
    """Return each value's range; a value written in parts has the union of their ranges."""
    ranges = {v: found[v.name] for v in graph.inputs if v.name in found}

    def extend(value: FloatValue, range_: ValueRange | None) -> None:
        if range_ is not None:
            ranges[value] = ranges[value].union(range_) if value in ranges else range_

    for node in graph.nodes:
        written = [o.name for o in node.instruction.operands if o.kind != IN]
        for value, operand in zip(node.results, written, strict=False):
            extend(value, found.get(_key(node.instruction, operand)))
        if node.opcode == "copy" and node.is_implicit:
            extend(node.results[0], ranges.get(node.sources[0]))
    return ranges
