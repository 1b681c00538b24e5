"""The tensor instruction that computes an element of a layer's result, found in a run.

This works on the program as it is, of any compiler: nothing is compiled again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.analysis.described import described
from nmpsim.analysis.reduce.instruction import Element, InstructionPart, instruction_part
from nmpsim.bundle import Bundle
from nmpsim.bundle.metadata import Layer
from nmpsim.config import DeviceConfig
from nmpsim.core.device import Device
from nmpsim.core.engines import make_engine
from nmpsim.core.host import run_host_step, write_tensor
from nmpsim.core.inputs import checked_inputs
from nmpsim.core.load import machine_of
from nmpsim.core.run import TURNS
from nmpsim.core.state import Machine, Outcome, end_segment, reset, start_cores
from nmpsim.core.stops import StopConditions, make_stops
from nmpsim.isa.shared_words import ELEMENTS
from nmpsim.isa.table import Unit
from nmpsim.timing import costs_of

Array = npt.NDArray[Any]


@attrs.frozen
class _Issue:
    """A tensor instruction that a core issued, and how often it had issued this one before."""

    core: int
    pc: int
    earlier: int
    element: Element


def computing_instruction(
    bundle: Bundle,
    inputs: Mapping[str, Array],
    config: DeviceConfig,
    engine: str,
    layer: Layer,
    at: Sequence[int],
) -> InstructionPart | None:
    """The last instruction of a layer that writes the element ``at`` of its result.

    None if none tells (only instructions that can saturate tell which elements they compute).
    """
    flat = int(np.ravel_multi_index(tuple(at), layer.output.shape))
    notes: list[Any] = []
    Device(config, engine).run(bundle, inputs, work=notes.append, strict=False)
    issue = _last_issue(np.concatenate(notes), bundle, layer, flat)
    if issue is None:
        return None
    machine = _machine_before(bundle, inputs, config, engine, issue)
    if machine is None:
        return None
    return instruction_part(machine, issue.core, issue.pc, config, issue.element)


def _last_issue(work: Any, bundle: Bundle, layer: Layer, flat: int) -> _Issue | None:
    computed = work[(work["is_grant"] == 0) & (work["unit"] >= Unit.MAC)]
    for index in np.flatnonzero(computed["layer"] == layer.index)[::-1]:
        entry = computed[index]
        core, pc = int(entry["core"]), int(entry["pc"])
        element = _element(bundle, pc, int(entry["descriptor"]), layer, flat)
        if element is not None:
            before = computed[:index]
            earlier = int(((before["core"] == core) & (before["pc"] == pc)).sum())
            return _Issue(core, pc, earlier, element)
    return None


def _element(bundle: Bundle, pc: int, descriptor: int, layer: Layer, flat: int) -> Element | None:
    """Where an instruction puts the layer's element of this index; None if it does not."""
    found = described(bundle, pc, descriptor)
    offset = None if found is None else found.offset_of(flat)
    if found is None or offset is None:
        return None
    words = found.words
    elem = {"int8": "i8", "int16": "i16"}[ELEMENTS[words["element"]]]
    return Element(layer.name, elem, 1 << words["element"], words["output"] + offset)


def _machine_before(
    bundle: Bundle,
    inputs: Mapping[str, Array],
    config: DeviceConfig,
    engine: str,
    issue: _Issue,
) -> Machine | None:
    """The machine just before an instruction; None if the run does not come there."""
    machine = machine_of(bundle, config)
    reset(machine)
    values = checked_inputs(bundle.metadata, inputs)
    for tensor in bundle.metadata.inputs:
        write_tensor(machine, tensor, values[tensor.name])
    stops = make_stops(config.cores_count, addresses=[(issue.core, issue.pc)])
    left = issue.earlier
    for step in bundle.metadata.steps:
        if step.kind == "host":
            run_host_step(machine, step)
            continue
        start_cores(machine, step.entry or 0)
        outcome, left = _run(machine, config, engine, stops, issue.core, left)
        if outcome != Outcome.DONE:
            return machine if outcome == Outcome.STOPPED else None
        end_segment(machine)
    return None


def _run(
    machine: Machine, config: DeviceConfig, engine: str, stops: StopConditions, core: int, left: int
) -> tuple[Outcome, int]:
    """Up to the end of a segment, or to the instruction for which ``left`` are passed before."""
    runner, costs = make_engine(engine), costs_of(config)
    while True:
        outcome = runner.run(machine, costs, TURNS, False, stops)
        if outcome == Outcome.STOPPED and left > 0:
            left -= 1
            stops.passed[core] = machine.cores.retired[core]
        elif outcome != Outcome.PAUSED:
            return outcome, left
