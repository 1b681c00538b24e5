"""What may have made the first wrong layer wrong: from its values, and from who wrote them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nmpsim.debugger.debugger import Debugger
from nmpsim.debugger.events import code_command
from nmpsim.debugger.instructions import Done
from nmpsim.debugger.outliers import outliers
from nmpsim.debugger.pattern import FEWEST, Nature, Pattern, patterns
from nmpsim.debugger.reference import LayerComparison, Reference
from nmpsim.debugger.regions import Mask
from nmpsim.debugger.stores import Writers, misplaced, overwritten, writers
from nmpsim.debugger.tracing import trace_of

MAX_OUTLIERS = 3
_WEIGHTED = ("convolution", "fullyconnected")
_WINDOWED = ("convolution", "pool")


def causes(
    debugger: Debugger, reference: Reference, one: LayerComparison, limit: int
) -> tuple[Pattern, ...]:
    """What speaks for a cause; nothing where the wrong elements may have come about anyhow.

    Elements that are off by at most ``limit`` count as right.
    """
    spoiled = tuple(overwritten(debugger, one.index))
    if not one.breaks:
        return spoiled
    layer = debugger.layers[one.index]
    expected = reference.output(layer)
    if one.alone is None or expected is None or expected.dtype != one.alone.dtype:
        return spoiled
    near = np.abs(one.alone.astype(np.float64) - expected) <= limit
    alone = np.where(near, expected, one.alone)
    nature = Nature(
        any(word in layer.op for word in _WEIGHTED), any(word in layer.op for word in _WINDOWED)
    )
    offset = layer.output.offset or 0
    if layer.placement == "host":
        return spoiled or patterns(alone, expected, offset, nature=nature)
    trace = trace_of(debugger, one.index)
    known = writers(layer, trace)
    wrong = alone != expected
    found = tuple(misplaced(layer, trace, known, wrong))
    odd = _outliers(trace, known, wrong, debugger.bundle.rw_base)
    if spoiled:
        return (*spoiled, *found)
    if found:  # channels and borders are wrong for that, and for no fault of their own
        nature = Nature(False, False)
    common = patterns(alone, expected, offset, known.owners(), nature, known.is_misplaced)
    return (*found, *odd, *common)


def _outliers(
    trace: Sequence[Done], known: Writers, wrong: Mask, writable: int
) -> tuple[Pattern, ...]:
    """Words that only those cores have otherwise that made the wrong elements."""
    cores = {known.stores[number].core for number in np.unique(known.last[wrong]) if number >= 0}
    if np.count_nonzero(wrong) < FEWEST:
        return ()
    return tuple(
        Pattern(one.text, (code_command(one.done.core, one.done.pc),))
        for one in outliers(trace, cores, writable)[:MAX_OUTLIERS]
    )
