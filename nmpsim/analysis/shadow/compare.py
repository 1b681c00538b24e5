"""A whole run compared with its exact evaluation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.analysis.shadow.errors import Real
from nmpsim.analysis.shadow.layers import Floats, compare_layer
from nmpsim.analysis.shadow.recording import executed_layers
from nmpsim.interpreter import execute_real
from nmpsim.lir.nodes import Module
from nmpsim.report.shadow import ShadowLayer

Array = npt.NDArray[Any]


@attrs.frozen
class RunLayer:
    """What is known of one layer besides its output."""

    numbers: tuple[int, ...]
    """Numbers of its instructions, in order."""
    cut_channels: frozenset[int] = frozenset()
    """Channels in which the device saturated values before the result."""


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
) -> Iterator[ShadowLayer]:
    """The errors of every layer of a run, in program order.

    Args:
        module: the program, with its constants.
        run: what the device did.
        floats: float values of constants, in the LIR's layout; None without float weights, then
            only what needs none is told.
    """
    network = None if floats is None else _FloatNetwork(module, run, floats)
    chains = [layer.numbers for layer in run.layers]
    index_of = {numbers[-1]: index for index, numbers in enumerate(chains)}
    for layer in executed_layers(module, chains, run.inputs, run.outputs):
        index = index_of[layer.number]
        yield compare_layer(
            index,
            layer,
            floats,
            None if network is None else network.output(layer.number),
            run.layers[index].cut_channels,
        )


class _FloatNetwork:
    """The float network, executed as far as its outputs are asked for."""

    def __init__(self, module: Module, run: RecordedRun, floats: Floats) -> None:
        self._results = execute_real(module, run.real_inputs, floats)
        self._wanted = {layer.numbers[-1] for layer in run.layers}
        self._ready: dict[int, Real] = {}

    def output(self, number: int) -> Real:
        """What the network has in place of an instruction's first result; to be asked once."""
        while number not in self._ready:
            instruction, _, values = next(self._results)
            if instruction.number in self._wanted:
                self._wanted.remove(instruction.number)
                self._ready[instruction.number] = np.asarray(values, np.float64)
        return self._ready.pop(number)
