"""A whole run beside its exact evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.analysis.shadow.errors import Real
from nmpsim.analysis.shadow.layers import Floats, compare_layer
from nmpsim.analysis.shadow.recording import executed_layers
from nmpsim.evaluation import execute_real
from nmpsim.lir.nodes import Module
from nmpsim.report.shadow import ShadowLayer

Array = npt.NDArray[Any]


@attrs.frozen
class RunLayer:
    """What is known of one layer beside its output."""

    numbers: tuple[int, ...]
    """Numbers of its instructions, in order."""
    cut_channels: frozenset[int] = frozenset()
    """Channels in which the device cut values before the result."""


@attrs.frozen(eq=False)
class RecordedRun:
    """What is known of a run."""

    inputs: Mapping[str, Array]
    """What each input of the program held, as it is stored."""
    real_inputs: Mapping[str, Array]
    """The real numbers that were meant: those before quantization, if the inputs are quantized."""
    layers: Sequence[RunLayer]
    outputs: Mapping[int, Array]
    """Number of a layer's last instruction -> its output in the logical shape."""


def compare_run(
    module: Module, run: RecordedRun, floats: Floats | None = None
) -> tuple[ShadowLayer, ...]:
    """The errors of every layer of a run, in program order.

    Args:
        module: the program, with its constants.
        run: what the device did.
        floats: float values of constants, in the LIR's layout; None without float weights, then
            only what needs none is told.
    """
    networks = {} if floats is None else float_network(module, run, floats)
    found = executed_layers(
        module, [layer.numbers for layer in run.layers], run.inputs, run.outputs
    )
    index_of = {layer.numbers[-1]: index for index, layer in enumerate(run.layers)}
    return tuple(
        compare_layer(
            index_of[layer.number],
            layer,
            floats,
            networks.get(layer.number),
            run.layers[index_of[layer.number]].cut_channels,
        )
        for layer in found
    )


def float_network(module: Module, run: RecordedRun, floats: Floats) -> dict[int, Real]:
    """What the float network has in place of each layer's output, by instruction number."""
    wanted = {layer.numbers[-1] for layer in run.layers} & set(run.outputs)
    results: dict[int, Real] = {}
    for instruction, _, values in execute_real(module, run.real_inputs, floats):
        if instruction.number in wanted:
            results.setdefault(instruction.number, np.asarray(values, np.float64))
    return results
