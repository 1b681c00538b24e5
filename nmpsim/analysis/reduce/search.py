"""Trying parts of a program, the smallest first, until one fails as the whole did."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import chain, islice, product
from typing import Any

import attrs
import numpy.typing as npt

from nmpsim.analysis.reduce.crop import crop, first_computed
from nmpsim.analysis.reduce.extract import Part, extract
from nmpsim.analysis.reduce.failures import Differs, Failure, Saturates, Violates
from nmpsim.analysis.reduce.instruction import (
    InstructionPart,
    computing_instruction,
    instruction_part,
)
from nmpsim.analysis.reduce.removal import without_the_rest
from nmpsim.bundle import Bundle, bundle_from_bytes
from nmpsim.compiler.driver import compile_module
from nmpsim.compiler.tiling.search import DEFAULT_TILING, TILINGS
from nmpsim.config import DeviceConfig
from nmpsim.core.device import Device
from nmpsim.core.inputs import prepare_inputs
from nmpsim.core.run import layer_key
from nmpsim.diagnostics import UserError, fail
from nmpsim.lir.nodes import Module
from nmpsim.report.data import RunReport

Array = npt.NDArray[Any]
Inputs = Mapping[str, Array]
Made = tuple[bytes, Inputs, Module | None, str | None]
"""A part: its bundle file, its inputs, its LIR or its assembly."""

_MAX_PLACES = 1000
"""Elements that show a failure of which one is tried as a part."""
_TILINGS = (DEFAULT_TILING, *(one for one in TILINGS if one != DEFAULT_TILING))


@attrs.frozen(eq=False)
class Reduced:
    """A part of a program that fails as the whole does."""

    failure: Failure
    image: bytes | None
    """The part's bundle file; None for the whole program's own."""
    bundle: Bundle
    inputs: Inputs
    report: RunReport
    """Of its run, with the outputs of its layers."""
    what: str
    """In words: which part, on how many cores."""
    tried: int
    """Parts that were compiled and run."""
    module: Module | None = None
    """The part's LIR, if it was compiled again."""
    assembly: str | None = None
    """The part's text, if it is an instruction."""
    slicing: str | None = None
    """How its layers were tiled, if it was compiled again."""


@attrs.frozen(eq=False)
class _Whole:
    """The run that failed."""

    bundle: Bundle
    inputs: Inputs
    device: Device
    report: RunReport
    failure: Failure


def reduce(
    bundle: Bundle,
    inputs: Inputs,
    device: Device,
    report: RunReport,
    failure: Failure,
    progress: Callable[[str], None] | None = None,
) -> Reduced:
    """The smallest part found that fails in the same way; the whole program, if no part does.

    Tried are: the instruction that trapped, on one core; the layer at fault, tiled in all ways, and
    more and more layers before it, compiled again, on one core and on all; the instruction that
    computes a wrong element, or the program without the instructions that a violation of the
    contract does not need. Where a layer fails alone, one element of its result is tried too.

    Args:
        bundle: the program.
        inputs: what it ran on.
        device: on which it ran last.
        report: of that run, with ``save_layers=True`` (and ``with_last_results``).
        failure: what is wrong with it.
        progress: told what is tried.
    """
    whole = _Whole(bundle, inputs, device, report, failure)
    tried, told = 0, progress or (lambda what: None)
    for attempt in chain(_trapped(whole), _windows(whole), _computing(whole), _rest(whole, told)):
        tried += 1
        told(attempt.what)
        found = attempt.run(whole.failure, whole.report.engine)
        if found is not None:
            smaller = _one_element(whole, found, attempt.config)
            return attrs.evolve(smaller or found, tried=tried + (smaller is not None))
    return Reduced(failure, None, bundle, inputs, report, "the whole program", tried)


@attrs.frozen(eq=False)
class _Attempt:
    what: str
    make: Callable[[], Made]
    config: DeviceConfig
    failure: Failure | None = None
    """What this part would have to show, if that is not the same as for the whole."""
    slicing: str | None = None
    """How layers are tiled, if the part is compiled again."""

    def run(self, failure: Failure, engine: str) -> Reduced | None:
        """The part, if it can be made and fails."""
        try:
            image, inputs, module, assembly = self.make()
            bundle = bundle_from_bytes(image, "repro.bin")
            device = Device(self.config, engine)
            failure = self.failure or failure
            strict = isinstance(failure, Violates)
            report = device.run(bundle, inputs, save_layers=True, strict=strict)
        except UserError:  # this part is no program of its own: a larger one may be
            return None
        if not failure.happens(report):
            return None
        what, slicing = self.what, self.slicing
        return Reduced(failure, image, bundle, inputs, report, what, 0, module, assembly, slicing)


def _trapped(whole: _Whole) -> Iterator[_Attempt]:
    trap = whole.report.trap
    if trap is None or trap.kind != "trap" or trap.core is None or trap.pc is None:
        return
    core, pc, config = trap.core, trap.pc, whole.device.config
    machine = whole.device.machine_after(whole.bundle)
    what = f"one instruction ({trap.instruction}) on one core"
    make = partial(_made, lambda: instruction_part(machine, core, pc, config))
    yield _Attempt(what, make, attrs.evolve(config, cores_count=1))


def _computing(whole: _Whole) -> Iterator[_Attempt]:
    """The instruction of the program as it is that computes a wrong element."""
    if not isinstance(whole.failure, Differs):
        return
    layer = whole.bundle.metadata.layers[_layer_at_fault(whole)]
    at = next(whole.failure.places(whole.report), None)
    if at is None:
        return
    bundle, inputs, config = whole.bundle, whole.inputs, whole.device.config
    engine = whole.report.engine
    place = ", ".join(map(str, at))
    yield _Attempt(
        f"the instruction that computes element [{place}] of layer {layer.name} on one core",
        partial(_made, lambda: computing_instruction(bundle, inputs, config, engine, layer, at)),
        attrs.evolve(config, cores_count=1),
        whole.failure.at(at),
    )


def _rest(whole: _Whole, told: Callable[[str], None]) -> Iterator[_Attempt]:
    """The program as it is, with the tensor instructions only that a violation needs."""
    found = whole.report.contract.violation
    if not isinstance(whole.failure, Violates) or found is None:
        return
    there = Violates.there(found)
    told("the program with fewer and fewer tensor instructions")
    rest = without_the_rest(whole.bundle, whole.inputs, whole.device, there)
    made: Made = (rest.image, whole.inputs, None, None)
    what = f"the program with {rest.kept} of its {rest.of} tensor instructions"
    if rest.kept < rest.of:
        yield _Attempt(what, lambda: made, whole.device.config, there)


def _made(find: Callable[[], InstructionPart | None]) -> Made:
    part = find()
    if part is None:
        raise fail("COMP001", "there is no such instruction")
    return part.bundle, part.inputs, None, part.text


def _windows(whole: _Whole) -> Iterator[_Attempt]:
    try:
        module = whole.bundle.module()
    except UserError:  # it carries none: nothing can be compiled again
        return
    last = _layer_at_fault(whole)
    layers = whole.bundle.metadata.layers
    config = whole.device.config
    for count in _growing(last + 1):
        wanted = range(last + 1 - count, last + 1)
        name = layers[last].name
        what = f"layer {name}" if count == 1 else f"{count} layers up to {name}"
        slicings = _TILINGS if count == 1 else (DEFAULT_TILING,)
        for cores, slicing in product(dict.fromkeys((1, config.cores_count)), slicings):
            device = attrs.evolve(config, cores_count=cores)
            on = "one core" if cores == 1 else f"{cores} cores"
            tiled = "" if slicing == DEFAULT_TILING else f", tiling {slicing}"
            make = _maker(whole, module, wanted, device, slicing)
            yield _Attempt(f"{what} on {on}{tiled}", make, device, slicing=slicing)


def _growing(most: int) -> Iterator[int]:
    """1, 2, 3, 5, 8, ... and the most."""
    one, other = 1, 2
    while one < most:
        yield one
        one, other = other, one + other
    yield most


def _maker(
    whole: _Whole, module: Module, wanted: range, config: DeviceConfig, slicing: str
) -> Callable[[], Made]:
    def make() -> Made:
        metadata = whole.bundle.metadata
        given = prepare_inputs(metadata, whole.inputs)
        outputs = whole.report.layer_outputs
        part = extract(module, metadata.layers, wanted, given, outputs)
        return _compiled(whole, part, config, slicing)

    return make


def _compiled(whole: _Whole, part: Part, config: DeviceConfig, slicing: str) -> Made:
    """A part as the whole was compiled, for some device."""
    metadata = whole.bundle.metadata
    names = {instruction.name for instruction in part.module.instructions}
    own = {
        layer.name: layer.numerics
        for layer in metadata.layers
        if layer.name in names and layer.numerics and layer.numerics != metadata.numerics
    }
    made = compile_module(
        part.module,
        config,
        numerics=metadata.numerics,
        layer_numerics=own,
        fuse_activations=any(layer.fused for layer in metadata.layers),
        slicing=slicing,
    )
    return bytes(made), part.inputs, part.module, None


def _one_element(whole: _Whole, found: Reduced, config: DeviceConfig) -> Reduced | None:
    """One element of a layer's result, if that alone fails too."""
    slicing = found.slicing
    if found.module is None or slicing is None or len(found.bundle.metadata.layers) != 1:
        return None
    layer = Part(found.module, found.inputs)
    places = islice(found.failure.places(found.report), _MAX_PLACES)
    at = first_computed(layer, places)
    if at is None:
        return None

    def make() -> Made:
        return _compiled(whole, crop(layer, at), config, slicing)

    what = f"element [{', '.join(map(str, at))}] of {found.what}"
    attempt = _Attempt(what, make, config, slicing=slicing)
    return attempt.run(found.failure.at(at), whole.report.engine)


def _layer_at_fault(whole: _Whole) -> int:
    """Index of the layer in which the failure shows."""
    layers = whole.bundle.metadata.layers
    failure = whole.failure
    if isinstance(failure, Differs | Saturates):
        return next(layer.index for layer in layers if layer.name == failure.layer)
    outputs = whole.report.layer_outputs
    missing = (layer.index for layer in layers if layer_key(layer) not in outputs)
    return next(missing, len(layers) - 1)
