"""Where the error of a quantized network jumps, by what a float network answers.

Every quantized layer is off, from the first one on. So each is run alone on the float network's
values, rounded to its inputs' types: what it loses then is its own doing.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator

import attrs
import numpy as np

from nmpsim.debugger.debugger import Debugger
from nmpsim.debugger.reference import LayerComparison, Reference, isolate
from nmpsim.lir.nodes import ELEM_DTYPES

JUMP_DB = 6.0
"""So far below what layers mostly have is a jump: twice the error."""
COARSE = 8
"""A range so many times as wide as what it holds wastes three bits."""


@attrs.frozen
class Alone:
    """What layers lose by themselves."""

    layers: tuple[LayerComparison, ...]
    """Quantized layers with a float reference, in the order in which they run."""

    @property
    def worst(self) -> LayerComparison:
        """The layer with the least SQNR alone."""
        return min(self.layers, key=sqnr_alone)

    @property
    def median_db(self) -> float:
        """Of all layers' SQNR alone."""
        return statistics.median(map(sqnr_alone, self.layers))

    @property
    def jumps(self) -> bool:
        """True if the worst layer stands out."""
        return sqnr_alone(self.worst) <= self.median_db - JUMP_DB


def sqnr_alone(one: LayerComparison) -> float:
    """In dB; what is no number is worse than any."""
    sqnr = math.inf if one.isolated is None else one.isolated.sqnr_db
    return -math.inf if math.isnan(sqnr) else sqnr


def layers_alone(debugger: Debugger, reference: Reference) -> Alone | None:
    """Every quantized layer that the reference knows; None if there is none.

    The program has to have run to its end.
    """
    found = []
    for index in debugger.layer_order():
        if index not in reference.layers or debugger.layers[index].output.scale is None:
            continue
        one = isolate(debugger, reference, index)
        if one.isolated is not None:
            found.append(one)
    return Alone(tuple(found)) if found else None


def range_faults(debugger: Debugger, reference: Reference, index: int) -> Iterator[str]:
    """What is wrong with the range of a layer's type, given what it should hold."""
    layer = debugger.layers[index]
    expected, output = reference.output(layer), layer.output
    if expected is None or output.scale is None or not expected.size:
        return
    limits = np.iinfo(ELEM_DTYPES[output.elem])
    ends = [output.scale * (limit - (output.offset or 0)) for limit in (limits.min, limits.max)]
    beyond = np.count_nonzero((expected < ends[0]) | (expected > ends[1]))
    held = f"{float(expected.min()):.4g} to {float(expected.max()):.4g}"
    type_holds = f"its type holds {ends[0]:.4g} to {ends[1]:.4g}"
    if beyond:
        yield f"{beyond} of {expected.size} values lie beyond its range: {held}, {type_holds}"
    elif COARSE * float(np.ptp(expected)) < ends[1] - ends[0]:
        yield f"its range is too wide: values are {held}, {type_holds}"
