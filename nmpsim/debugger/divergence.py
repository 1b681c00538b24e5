"""Search for the causes of the first wrong layer in its values and in their writers.

Against a float network every quantized layer differs, from the first one on. Each layer is
therefore executed in isolation on the float network's values, rounded to the types of its inputs.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import attrs
import numpy as np

from nmpsim.analysis.difference import rank_sqnr
from nmpsim.analysis.matching import AXIS_ORDERS
from nmpsim.config import make_device_config
from nmpsim.core.device import Device
from nmpsim.core.run import make_layer_key
from nmpsim.debugger.debugger import Debugger
from nmpsim.debugger.error_patterns import (
    MIN_VALUES,
    ErrorPattern,
    LayerTraits,
    find_error_patterns,
)
from nmpsim.debugger.error_regions import Mask
from nmpsim.debugger.hazards import Hazard
from nmpsim.debugger.instructions import ExecutedInstruction
from nmpsim.debugger.output_writers import (
    OutputWriters,
    find_misplaced_writes,
    find_output_writers,
    find_overwritten_inputs,
)
from nmpsim.debugger.reference import (
    LayerComparison,
    ReferenceOutputs,
    compare_layer,
    execute_isolated,
    get_stored_output,
    isolate_layer,
)
from nmpsim.debugger.tracing import trace_layer
from nmpsim.isa.descriptors import PADS
from nmpsim.lir.nodes import ELEM_DTYPES

if TYPE_CHECKING:
    from nmpsim.analysis.hypotheses import HypothesisResults

JUMP_DB = 6.0
"""Distance below the median SQNR, in dB, that counts as a jump: twice the error."""
MIN_RIGHT_DB = 12.0
"""SQNR of a layer in isolation, in dB, from which a layout of the reference fits the layer."""
MAX_TRIED_LAYERS = 20
"""Largest number of layers that are executed in isolation under each layout of the reference."""
MAX_RANGE_RATIO = 8
"""Largest accepted ratio of a type's range to the values' range: three wasted bits."""


@attrs.frozen
class IsolatedErrors:
    """Errors of quantized layers executed in isolation, with a float reference."""

    layers: tuple[LayerComparison, ...]
    """Quantized layers with a float reference, in order of execution."""

    @property
    def worst(self) -> LayerComparison:
        """Layer with the lowest isolated SQNR."""
        return min(self.layers, key=get_isolated_sqnr)

    @property
    def median_db(self) -> float:
        """Median of the isolated SQNR of all layers, in dB."""
        return statistics.median(map(get_isolated_sqnr, self.layers))

    @property
    def has_outlier(self) -> bool:
        """Whether the worst layer's SQNR is an outlier: at least 6 dB below the median."""
        return get_isolated_sqnr(self.worst) <= self.median_db - JUMP_DB


def get_isolated_sqnr(comparison: LayerComparison) -> float:
    """Return a layer's isolated SQNR in dB; infinity if unknown, minus infinity for NaN."""
    return rank_sqnr(comparison.isolated)


def isolate_layers(debugger: Debugger, reference: ReferenceOutputs) -> IsolatedErrors | None:
    """Execute each quantized layer of a reference in isolation, or return None if none exists.

    The program must have run to its end.
    """
    found = []
    for index in debugger.get_layer_order():
        if index not in reference.layer_indices or debugger.layers[index].output.scale is None:
            continue
        one = isolate_layer(debugger, reference, index)
        if one.isolated is not None:
            found.append(one)
    return IsolatedErrors(tuple(found)) if found else None


def find_range_faults(debugger: Debugger, reference: ReferenceOutputs, index: int) -> Iterator[str]:
    """Yield a description if a layer's range is too narrow or too wide for the expected values."""
    layer = debugger.layers[index]
    expected, output = reference.get_output(layer), layer.output
    if expected is None or output.scale is None or not expected.size:
        return
    limits = np.iinfo(ELEM_DTYPES[output.elem])
    ends = [output.scale * (limit - (output.offset or 0)) for limit in (limits.min, limits.max)]
    beyond = np.count_nonzero((expected < ends[0]) | (expected > ends[1]))
    held = f"{float(expected.min()):.4g} to {float(expected.max()):.4g}"
    type_holds = f"the type represents {ends[0]:.4g} to {ends[1]:.4g}"
    if beyond:
        yield f"{beyond} of {expected.size} values exceed the range of the type: values are"
        f" {held}, {type_holds}"
    elif MAX_RANGE_RATIO * float(np.ptp(expected)) < ends[1] - ends[0]:
        yield f"the range of the type is too wide: values are {held}, {type_holds}"


def complete_matching(debugger: Debugger, reference: ReferenceOutputs) -> None:
    """Match an ambiguous reference by the values of finished layers, and determine its layout.

    If shapes and values fit several layouts, the layers are executed in isolation under each
    layout. The reference has the layout under which most layers are right, or the only one under
    which a change explains the first wrong layer. The layout remains unknown if layouts fit
    equally.
    """
    outputs = debugger.layer_outputs
    if reference.is_ambiguous and outputs:
        reference.match_values(outputs)
    if reference.is_layout_known:
        return
    votes: Counter[str] = Counter()
    wrong: dict[str, LayerComparison] = {}
    for layout in AXIS_ORDERS:
        reference.match_values(outputs, layout)
        chosen = sorted(reference.layer_indices & outputs.keys())[:MAX_TRIED_LAYERS]
        found = [isolate_layer(debugger, reference, index) for index in chosen]
        known = [one for one in found if one.isolated is not None]
        near = [one for one in known if get_isolated_sqnr(one) >= MIN_RIGHT_DB]
        votes[layout] = len(near)
        faulty = [one for one in known if one.is_faulty]
        wrong |= {layout: faulty[0]} if faulty else {}
    likely = [layout for layout in AXIS_ORDERS if votes[layout] == max(votes.values())]
    if len(likely) > 1:
        explained = []
        for layout in set(likely) & wrong.keys():
            reference.match_values(outputs, layout)
            if explain_faulty_layer(debugger, reference, wrong[layout]).explanations:
                explained.append(layout)
        likely = explained
    reference.match_values(outputs, likely[0] if len(likely) == 1 else None)


MAX_OUTLIERS = 3
_WEIGHTED = ("convolution", "fullyconnected")
_WINDOWED = ("convolution", "pool")


def find_error_causes(
    debugger: Debugger, reference: ReferenceOutputs, comparison: LayerComparison, limit: int
) -> tuple[ErrorPattern, ...]:
    """Return error patterns that suggest causes of a layer's wrong elements.

    Elements that are off by at most ``limit`` count as right.
    """
    spoiled = tuple(find_overwritten_inputs(debugger, comparison.index))
    if not comparison.is_faulty:
        return spoiled
    layer = debugger.layers[comparison.index]
    expected = reference.get_output(layer)
    if (
        comparison.isolated_output is None
        or expected is None
        or expected.dtype != comparison.isolated_output.dtype
    ):
        return spoiled
    near = np.abs(comparison.isolated_output.astype(np.float64) - expected) <= limit
    alone = np.where(near, expected, comparison.isolated_output)
    traits = LayerTraits(
        any(word in layer.op for word in _WEIGHTED), any(word in layer.op for word in _WINDOWED)
    )
    offset = layer.output.offset or 0
    if layer.placement == "host":
        return spoiled or find_error_patterns(alone, expected, offset, traits=traits)
    trace = trace_layer(debugger, comparison.index)
    known = find_output_writers(layer, trace)
    wrong = alone != expected
    found = tuple(find_misplaced_writes(layer, trace, known, wrong))
    odd = _outliers(trace, known, wrong, debugger.bundle.rw_base)
    if spoiled:
        return (*spoiled, *found)
    if found:  # channels and borders are wrong for that, and for no fault of their own
        traits = LayerTraits(False, False)
    common = find_error_patterns(
        alone, expected, offset, known.list_owners(), traits, known.misplaced_mask
    )
    return (*found, *odd, *common)


@attrs.frozen
class FaultyLayer:
    """Faulty layer, which is wrong even with the reference's inputs, and its likely causes."""

    name: str
    causes: tuple[str, ...]
    """Changes of the layer that make it right, hazards and error patterns; may be empty."""


def find_faulty_layer(
    debugger: Debugger,
    reference: ReferenceOutputs,
    limit: int = 0,
) -> FaultyLayer | None:
    """Run a program and find its first faulty layer, or return None if no layer is faulty.

    Parameters
    ----------
    debugger : Debugger
        Debugger at the start of the program.
    reference : ReferenceOutputs
        Expected outputs of layers, which are not those of a float network.
    limit : int
        Difference in units of the last place up to which elements count as right.

    Returns
    -------
    FaultyLayer or None
        None if each layer that can be executed in isolation is right.
    """
    debugger.run_to_end()
    complete_matching(debugger, reference)
    for index in debugger.get_layer_order():
        found = compare_layer(debugger, reference, index).accumulated
        if found is None or found.worst_ulp <= limit:
            continue
        one = isolate_layer(debugger, reference, index)
        if one.isolated is None or one.isolated.worst_ulp <= limit:
            continue
        results = explain_faulty_layer(debugger, reference, one)
        hazards = [found.description for found in list_layer_hazards(debugger, index)]
        patterns = find_error_causes(debugger, reference, one, limit)
        causes = (
            *(found.text for found in results.explanations),
            *(found.text for found in patterns),
            *(f"hazard: {text}" for text in hazards),
        )
        return FaultyLayer(one.name, causes)
    return None


def list_layer_hazards(debugger: Debugger, index: int) -> list[Hazard]:
    """Return the hazards of a layer up to the current position."""
    return [hazard for hazard in debugger.find_hazards() if hazard.layer == index]


def explain_faulty_layer(
    debugger: Debugger,
    reference: ReferenceOutputs,
    comparison: LayerComparison,
) -> HypothesisResults:
    """Search for changes that explain a layer's wrong result on the reference's inputs.

    Inputs that are not in the reference are those of the run.
    """
    from nmpsim.analysis.hypotheses import HypothesisResults, SearchLimits, search_hypotheses

    expected = get_stored_output(debugger.layers[comparison.index], reference)
    if not comparison.is_faulty or expected is None or reference.is_float():
        return HypothesisResults(problem="the layer is not wrong in each bit")
    outputs = {make_layer_key(debugger.layers[i]): v for i, v in debugger.layer_outputs.items()}
    name = debugger.layers[comparison.index].output.name
    for layer in debugger.layers:
        known = get_stored_output(layer, reference)
        if known is None and layer.output.name == name:  # another part of the result
            known = execute_isolated(debugger, reference, layer.index)
        if known is not None:
            outputs[make_layer_key(layer)] = known
    bundle = debugger.bundle
    device = Device(make_device_config(bundle.metadata.device), "auto")
    actual = comparison.isolated_output
    limits = SearchLimits(is_interrupted=debugger.is_interrupted, progress=debugger.search_progress)
    return search_hypotheses(
        bundle, comparison.index, debugger.inputs, outputs, expected, actual, device, limits
    )


def _outliers(
    trace: Sequence[ExecutedInstruction], known: OutputWriters, wrong: Mask, writable: int
) -> tuple[ErrorPattern, ...]:
    """Return words that differ only on the cores that computed the wrong elements."""
    cores = {known.stores[number].core for number in np.unique(known.last[wrong]) if number >= 0}
    if np.count_nonzero(wrong) < MIN_VALUES:
        return ()
    return tuple(islice(find_word_outliers(trace, cores, writable), MAX_OUTLIERS))


SHARED_WORDS = (
    "profile", "operation", "activation", "element",
    "kernel_h", "kernel_w", "stride_h", "stride_w", "dilation_h", "dilation_w",
    "weight_offset", "lhs_offset", "rhs_offset", "in_offset", "out_offset",
    "fill", "empty_value", "in_low", "in_high", "clip_low", "clip_high",
    "out_pre", "out_mul", "out_post", "lhs_pre", "lhs_mul", "lhs_post",
    "rhs_pre", "rhs_mul", "rhs_post", "leaky_pre", "leaky_mul", "leaky_post",
    "result_scale", "divide", "dram_stride_x", "dram_stride_y",
)  # fmt: skip
"""Words that are equal in all instructions of a layer, whatever part of it they compute."""

_COUNTS = {"dram_stride_x": "count_x", "dram_stride_y": "count_y"}
"""Stride -> count that must exceed 1 for the stride to matter."""


def find_word_outliers(
    trace: Sequence[ExecutedInstruction], cores: Collection[int], writable: int
) -> Iterator[ErrorPattern]:
    """Yield an error pattern for each descriptor word with another value on all other cores.

    ``writable`` is the address from which DRAM is no part of the program.
    """
    groups: dict[tuple[object, ...], list[ExecutedInstruction]] = defaultdict(list)
    for done in trace:
        if done.unit is not None and done.words:
            is_writable = done.words.get("dram", 0) >= writable
            groups[done.instruction.mnemonic, done.words.get("part", 0), is_writable].append(done)
    for group in groups.values():
        own = [done for done in group if done.core in cores]
        others = [done for done in group if done.core not in cores]
        for word in SHARED_WORDS if own and len({done.core for done in others}) > 1 else ():
            usual = {done.words[word] for done in others if _matters(word, done)}
            odd = [done for done in own if _matters(word, done) and done.words[word] not in usual]
            if len(usual) == 1 and odd:
                one = odd[0]
                text = (
                    f"{word} of {one.instruction.mnemonic} at {one.pc:#x} of core {one.core} is"
                    f" {one.words[word]}, but {usual.pop()} on the other cores"
                )
                yield ErrorPattern(text, (one.code_command,))


def _matters(word: str, done: ExecutedInstruction) -> bool:
    """Return whether an instruction has a word that affects its result."""
    if word == "fill":
        return any(done.words.get(pad) for pad in PADS)
    count = _COUNTS.get(word)
    return word in done.words and (count is None or done.words[count] > 1)
