"""View: what the screen shows of a stopped debugger."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from nmpsim.analysis.data_flow import layer_edges
from nmpsim.analysis.memory_map import memory_map
from nmpsim.bundle.metadata import Layer
from nmpsim.debugger import CoreState, Debugger, LayerState, RunLocation
from nmpsim.debugger.breakpoints import AddressCondition, LayerCondition
from nmpsim.debugger.commands.results import CommandResult
from nmpsim.debugger.commands.shell import Shell
from nmpsim.debugger.edits import Edit
from nmpsim.debugger.inspect import list_core_states, list_layer_states
from nmpsim.debugger.operands import LirOperands, find_lir_operands
from nmpsim.debugger.reference import LayerComparison
from nmpsim.debugger.work_log import WorkLog
from nmpsim.diagnostics import UserError
from nmpsim.escape import escape_line
from nmpsim.lir.nodes import Module
from nmpsim.lir.printer import format_module
from nmpsim.report.analyses import MemoryBlock
from nmpsim.report.data import RunReport

NUMBERED = re.compile(r"^  \d+ %(\S+) = ")


@attrs.frozen
class ProgramFacts:
    """Facts about a program that do not change during a run, such as its LIR text."""

    edits: tuple[Edit, ...]
    """Edits whose scales the LIR has."""
    source: tuple[str, ...]
    """Lines of the LIR, or why there is none."""
    layer_at: Mapping[int, int]
    """Line -> layer of its instruction, including fused instructions."""
    sources: Mapping[int, tuple[int, ...]]
    """Layer -> layers whose results it reads."""
    readers: Mapping[int, tuple[int, ...]]
    """Layer -> layers that read its result."""
    memory: tuple[MemoryBlock, ...]
    operands: LirOperands
    module: Module | None
    """The LIR with its constants; None if the bundle carries none."""


def read_program_facts(shell: Shell) -> ProgramFacts:
    """Read the facts about a debugged program from its bundle: LIR text, edges and memory."""
    bundle, module, operands = shell.debugger.bundle, None, LirOperands({}, {})
    try:
        module = shell.get_module()
        text = format_module(module)
        operands = find_lir_operands(module, bundle.metadata.layers)
    except UserError as error:
        text = str(error)
    source = tuple(escape_line(line) for line in text.splitlines())
    layers = {
        name: layer.index for layer in bundle.metadata.layers for name in (layer.name, *layer.fused)
    }
    numbered = ((number, NUMBERED.match(line)) for number, line in enumerate(source))
    lines = {n: layers[match[1]] for n, match in numbered if match and match[1] in layers}
    edges = layer_edges(bundle)
    return ProgramFacts(
        shell.debugger.edits,
        source,
        lines,
        _by_first((reader, source) for source, reader in edges),
        _by_first(edges),
        memory_map(bundle),
        operands,
        module,
    )


def _by_first(pairs: Iterable[tuple[int, int]]) -> Mapping[int, tuple[int, ...]]:
    found: dict[int, tuple[int, ...]] = {}
    for first, second in sorted(set(pairs)):
        found[first] = (*found.get(first, ()), second)
    return found


@attrs.frozen(eq=False)
class ScreenState:
    """Immutable state of the screen: location of the run, results, and the user's selection.

    The panes read the rest from ``debugger``, which does not move meanwhile.
    """

    shell: Shell
    facts: ProgramFacts
    location: RunLocation
    answer: CommandResult
    """Result of the last command."""
    report: RunReport
    """Report of the run so far."""
    layers: tuple[LayerState, ...]
    cores: tuple[CoreState, ...]
    comparisons: Mapping[int, LayerComparison] = attrs.field(factory=dict)
    """Comparisons of finished layers with the reference; empty without one."""
    at: int | None = None
    """Index of the layer that the run is at; None at the end."""
    layer: int = 0
    """Index of the selected layer."""
    core: int = 0
    """Selected core."""
    element: tuple[int, ...] = ()
    """Coordinates in the layer's output that the last answer is about; () if none."""
    tensor: str | None = None
    """Name of the requested tensor; None to show the layer's tensors."""

    @property
    def debugger(self) -> Debugger:
        """Debugger of the run on the screen."""
        return self.shell.debugger

    @property
    def work(self) -> WorkLog:
        """Log of the work of the units up to the current position."""
        return self.debugger.get_work_log()

    @property
    def selected_layer(self) -> Layer | None:
        """Selected layer, or None if the program has no layers."""
        return self.debugger.layers[self.layer] if self.layers else None

    @property
    def breakpoint_layers(self) -> frozenset[int]:
        """Indices of the layers that have an enabled breakpoint."""
        conditions = [one.condition for one in self.debugger.breakpoints if one.is_enabled]
        return frozenset(one.layer for one in conditions if isinstance(one, LayerCondition))

    @property
    def breakpoint_addresses(self) -> frozenset[int]:
        """Addresses that have an enabled breakpoint."""
        conditions = [one.condition for one in self.debugger.breakpoints if one.is_enabled]
        return frozenset(one.address for one in conditions if isinstance(one, AddressCondition))


def make_first_view(shell: Shell) -> ScreenState:
    """Start recording the work of the units, and return the initial view."""
    shell.debugger.record_work()
    answer = CommandResult(("c runs it to the end, n a layer; ? lists all keys",))
    view = ScreenState(
        shell=shell, facts=read_program_facts(shell), answer=answer, **_read_state(shell)
    )
    return attrs.evolve(view, at=view.location.layer, layer=view.location.layer or 0)


def _read_state(shell: Shell) -> dict[str, Any]:
    """Return the fields of a view that follow from the current position."""
    debugger, report = shell.debugger, shell.debugger.report()
    layers = list_layer_states(debugger, report)
    done = [one.index for one in layers if one.state == "done" and shell.reference is not None]
    return {
        "location": debugger.get_location(),
        "report": report,
        "layers": layers,
        "cores": list_core_states(debugger),
        "comparisons": {index: shell.compare_layer(index) for index in done},
    }


def execute_command(before: ScreenState, line: str) -> ScreenState:
    """Execute a command line and return the resulting view."""
    view = make_next_view(before, before.shell.execute(line))
    # Compiled kernels are many objects that stay; a garbage collection that looks at all of them
    # takes longer than the answer to a key may.
    gc.collect(1)
    gc.freeze()
    return view


def make_next_view(before: ScreenState, answer: CommandResult) -> ScreenState:
    """Return the view after a command; the selection changes if the run has moved."""
    edits, facts = before.debugger.edits, before.facts
    if facts.edits is not edits:
        facts = read_program_facts(before.shell)
    view = attrs.evolve(before, facts=facts, answer=answer, **_read_state(before.shell))
    has_moved, data = view.location.position != before.location.position, answer.data
    at = _stands_at(view) if has_moved else before.at
    asked, reason = _asked_about(view), data.get("reason")
    if asked is None and at not in (None, before.at):
        asked = at
    elif asked is None and has_moved and view.layers and reason == "end":
        asked = max(view.layers, key=lambda layer: layer.cycles).index
    core = view.location.core if reason in ("breakpoint", "trap") else data.get("core")
    selection: dict[str, Any] = {"at": at, "element": _element_of(answer)}
    if asked is not None:
        selection |= {"layer": asked, "tensor": None}
    if "tensor" in data:
        selection["tensor"] = data["tensor"]["name"]
    if isinstance(core, int) and has_moved:
        selection["core"] = core
    return attrs.evolve(view, **selection)


def _stands_at(view: ScreenState) -> int | None:
    """Return the finished layer after a step to its end, otherwise the next layer."""
    debugger, location = view.debugger, view.location
    if view.answer.data.get("reason") == "step" and location.layers_done:
        last = debugger.get_layer_order()[location.layers_done - 1]
        if debugger.layer_ends.get(last) == location.position:
            return last
    return location.layer


def _asked_about(view: ScreenState) -> int | None:
    """Return the layer that an answer is about, by its index or name."""
    data = view.answer.data
    named = next((data[key] for key in ("layer", "index", "first") if key in data), None)
    if isinstance(named, int):
        return named
    return next((state.index for state in view.layers if state.name == named), None)


def _element_of(answer: CommandResult) -> tuple[int, ...]:
    """Return the element that an answer explains, or the first one that differs."""
    at = answer.data.get("at", ())
    for one in answer.data.get("layers", ()) if "verdict" in answer.data else ():
        at = (one["accumulated"] or {}).get("first") or at
    return tuple(at)
