"""Search for the smallest part of a program that fails like the whole program."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, islice, product

import attrs

from nmpsim.analysis.program import Program
from nmpsim.analysis.reduce.crop import crop_layer
from nmpsim.analysis.reduce.extract import ExtractedProgram, extract_layers
from nmpsim.analysis.reduce.failures import (
    DifferenceFailure,
    Failure,
    SaturationFailure,
    ViolationFailure,
)
from nmpsim.analysis.reduce.instruction import (
    BuiltProgram,
    extract_computing_instruction,
    extract_instruction,
    remove_instructions,
)
from nmpsim.arrays import Arrays
from nmpsim.bundle import Bundle, parse_bundle
from nmpsim.bundle.formulas import find_custom_formulas
from nmpsim.compiler.tiling.search import LAYER_TILINGS
from nmpsim.config import DeviceConfig
from nmpsim.core.device import Device
from nmpsim.core.inputs import prepare_inputs
from nmpsim.core.run import make_layer_key
from nmpsim.diagnostics import UserError
from nmpsim.lir.nodes import Module
from nmpsim.report.data import RunReport

Inputs = Arrays
_MAX_PLACES = 1000
"""Number of failing elements that are tried as a part."""


@attrs.frozen(eq=False)
class Reduction:
    """Reduction of a program to the smallest part found that fails in the same way."""

    failure: Failure
    program: BuiltProgram
    """The part; the whole program if no part fails."""
    bundle: Bundle
    report: RunReport
    """Report of its run, with the outputs of its layers."""
    description: str
    """Description of the part and number of cores."""
    attempts: int = 0
    """Number of parts that were compiled and run."""
    tiling: str | None = None
    """Tiling mode of its layers, if it was recompiled."""


@attrs.frozen(eq=False)
class _FailedRun:
    """The failed run of the whole program."""

    bundle: Bundle
    inputs: Inputs
    device: Device
    report: RunReport
    failure: Failure


def reduce_program(
    bundle: Bundle,
    inputs: Inputs,
    device: Device,
    report: RunReport,
    failure: Failure,
    progress: Callable[[str], None] | None = None,
) -> Reduction:
    """Reduce a program to the smallest part that fails in the same way.

    Tried in this order: the instruction that trapped, on one core; the failing layer with each
    tiling mode, and ever more layers before it, recompiled for one core and for all; the
    instruction that computes a wrong element, or the program without instructions that a violation
    does not need. If a single layer fails, one element of its result is tried too.

    Parameters
    ----------
    bundle
        The program.
    inputs
        Inputs of the run.
    device
        The device of the last run.
    report
        Report of that run, with ``save_layers=True`` (and ``add_program_outputs``).
    failure
        The failure to reproduce.
    progress
        Called with a description of each attempt.
    """
    whole = _FailedRun(bundle, inputs, device, report, failure)
    attempts, notify = 0, progress or (lambda description: None)
    for attempt in chain(
        _trap_attempts(whole),
        _windows(whole),
        _instruction_attempts(whole),
        _removal_attempts(whole, notify),
    ):
        attempts += 1
        notify(attempt.description)
        found = attempt.run(whole.failure, whole.report.engine)
        if found is not None:
            smaller = _crop_to_element(whole, found, attempt.config)
            return attrs.evolve(smaller or found, attempts=attempts + (smaller is not None))
    program = BuiltProgram(bytes(bundle.file), inputs)
    return Reduction(failure, program, bundle, report, "the whole program", attempts)


@attrs.frozen(eq=False)
class _Attempt:
    description: str
    build: Callable[[], BuiltProgram | None]
    """Function that returns the part, or None if it cannot be built."""
    config: DeviceConfig
    failure: Failure | None = None
    """Failure that the part has to show, if it differs from the whole program's."""
    tiling: str | None = None
    """Tiling mode, if the part is recompiled."""

    def run(self, failure: Failure, engine: str) -> Reduction | None:
        """Return the part if it can be built and fails."""
        failure = self.failure or failure
        strict = isinstance(failure, ViolationFailure)
        try:
            program = self.build()
            if program is None:
                return None
            bundle = parse_bundle(program.image, "repro.bin")
            device = Device(self.config, engine)
            report = device.run(bundle, program.inputs, save_layers=True, strict=strict)
        except UserError:  # this part is no program of its own: a larger one may be
            return None
        if not failure.occurs_in(report):
            return None
        return Reduction(failure, program, bundle, report, self.description, tiling=self.tiling)


def _trap_attempts(whole: _FailedRun) -> Iterator[_Attempt]:
    trap = whole.report.trap
    if trap is None or trap.kind != "trap" or trap.core is None or trap.pc is None:
        return
    core, pc, config = trap.core, trap.pc, whole.device.config
    machine = whole.device.machine_after(whole.bundle)
    yield _Attempt(
        f"one instruction ({trap.instruction}) on one core",
        lambda: extract_instruction(machine, core, pc, config),
        attrs.evolve(config, cores_count=1),
    )


def _instruction_attempts(whole: _FailedRun) -> Iterator[_Attempt]:
    """Yield an attempt with the compiled instruction that computes a wrong element."""
    if not isinstance(whole.failure, DifferenceFailure):
        return
    layer = whole.bundle.metadata.layers[_failing_layer(whole)]
    at = next(whole.failure.iterate_failing_elements(whole.report), None)
    if at is None:
        return
    config, engine = whole.device.config, whole.report.engine
    yield _Attempt(
        f"the instruction that computes element {list(at)} of layer {layer.name} on one core",
        lambda: extract_computing_instruction(
            whole.bundle, whole.inputs, config, engine, layer, at
        ),
        attrs.evolve(config, cores_count=1),
        whole.failure.restrict(at),
    )


def _removal_attempts(whole: _FailedRun, notify: Callable[[str], None]) -> Iterator[_Attempt]:
    """Yield an attempt with only those tensor instructions that a violation needs."""
    found = whole.report.contract.violation
    if not isinstance(whole.failure, ViolationFailure) or found is None:
        return
    failure = ViolationFailure.from_violation_at_instructions(found)
    notify("the program with fewer and fewer tensor instructions")
    image, kept, total = remove_instructions(whole.bundle, whole.inputs, whole.device, failure)
    if kept < total:
        program = BuiltProgram(image, whole.inputs)
        description = f"the program with {kept} of its {total} tensor instructions"
        yield _Attempt(description, lambda: program, whole.device.config, failure)


def _windows(whole: _FailedRun) -> Iterator[_Attempt]:
    try:
        module = whole.bundle.module()
    except UserError:  # it carries none: nothing can be compiled again
        return
    last = _failing_layer(whole)
    layers = whole.bundle.metadata.layers
    config = whole.device.config
    for count in _growing_counts(last + 1):
        wanted = range(last + 1 - count, last + 1)
        name = layers[last].name
        layer = f"layer {name}" if count == 1 else f"{count} layers up to {name}"
        tilings = LAYER_TILINGS if count == 1 else LAYER_TILINGS[:1]
        for cores, tiling in product(dict.fromkeys((1, config.cores_count)), tilings):
            device = attrs.evolve(config, cores_count=cores)
            on = "one core" if cores == 1 else f"{cores} cores"
            tiled = "" if tiling == LAYER_TILINGS[0] else f", tiling {tiling}"
            make = partial(_make_part, whole, module, wanted, device, tiling)
            yield _Attempt(f"{layer} on {on}{tiled}", make, device, tiling=tiling)


def _growing_counts(most: int) -> Iterator[int]:
    """Yield 1, 2, 3, 5, 8, ... and ``most``."""
    one, other = 1, 2
    while one < most:
        yield one
        one, other = other, one + other
    yield most


def _make_part(
    whole: _FailedRun, module: Module, wanted: range, config: DeviceConfig, tiling: str
) -> BuiltProgram:
    metadata = whole.bundle.metadata
    given = prepare_inputs(whole.bundle, whole.inputs)
    part = extract_layers(module, metadata.layers, wanted, given, whole.report.layer_outputs)
    return _compile_part(whole, part, config, tiling)


def _compile_part(
    whole: _FailedRun, part: ExtractedProgram, config: DeviceConfig, tiling: str
) -> BuiltProgram:
    """Compile a part with the options of the whole program for a device."""
    metadata = whole.bundle.metadata
    names = {instruction.name for instruction in part.module.instructions}
    own = {name: kind for name, kind in metadata.layer_numerics.items() if name in names}
    fuse = any(layer.fused for layer in metadata.layers)
    formulas = find_custom_formulas(metadata.formulas)
    program = Program(part.module, metadata.numerics, layer_numerics=own, formulas=formulas)
    made = program.compile(config, fuse_activations=fuse, tiling=tiling)
    return BuiltProgram(bytes(made.file), part.inputs, part.module)


def _crop_to_element(whole: _FailedRun, found: Reduction, config: DeviceConfig) -> Reduction | None:
    """Return the part cropped to one element of its result, if it still fails."""
    module, tiling = found.program.module, found.tiling
    if module is None or tiling is None or len(found.bundle.metadata.layers) != 1:
        return None
    layer = ExtractedProgram(module, found.program.inputs)
    for at in islice(found.failure.iterate_failing_elements(found.report), _MAX_PLACES):
        try:
            cropped = crop_layer(layer, at)
        except UserError:  # the element is no program of its own
            return None
        if cropped is not None:
            attempt = _Attempt(
                f"element {list(at)} of {found.description}",
                partial(_compile_part, whole, cropped, config, tiling),
                config,
                tiling=tiling,
            )
            return attempt.run(found.failure.restrict(at), whole.report.engine)
    return None


def _failing_layer(whole: _FailedRun) -> int:
    """Return the index of the layer in which the failure shows."""
    layers = whole.bundle.metadata.layers
    failure = whole.failure
    if isinstance(failure, DifferenceFailure | SaturationFailure):
        return next(layer.index for layer in layers if layer.name == failure.layer)
    outputs = whole.report.layer_outputs
    missing = (layer.index for layer in layers if make_layer_key(layer) not in outputs)
    return next(missing, len(layers) - 1)
