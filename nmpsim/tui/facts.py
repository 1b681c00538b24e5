"""What does not change while a program runs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import attrs

from nmpsim.analysis.data_flow import layer_edges
from nmpsim.analysis.memory_map import memory_map
from nmpsim.bundle import Bundle
from nmpsim.debugger.edits import Edit, scales_of
from nmpsim.debugger.operands import LirOperands, lir_operands
from nmpsim.debugger.rederive import rescaled_module
from nmpsim.diagnostics import UserError
from nmpsim.lir.nodes import Module
from nmpsim.lir.printer import print_module
from nmpsim.report.details import MemoryBlock
from nmpsim.visible import visible_line

NUMBERED = re.compile(r"^  \d+ %(\S+) = ")


@attrs.frozen
class Facts:
    """The program's text and the map of its memory."""

    edits: tuple[Edit, ...]
    """Those whose scales the LIR has."""
    source: tuple[str, ...]
    """Lines of the LIR, or why there is none."""
    layer_at: Mapping[int, int]
    """Line -> layer whose instruction stands there, those fused into it included."""
    sources: Mapping[int, tuple[int, ...]]
    """Layer -> layers whose results it reads."""
    readers: Mapping[int, tuple[int, ...]]
    """Layer -> layers that read its result."""
    memory: tuple[MemoryBlock, ...]
    operands: LirOperands
    module: Module | None
    """The LIR with its constants; None if the bundle carries none."""


def facts_of(bundle: Bundle, edits: tuple[Edit, ...]) -> Facts:
    """Read a bundle's debug information; without any, the source says so."""
    module, operands = None, LirOperands({}, {})
    try:
        module = rescaled_module(bundle.module(), scales_of(edits))
        text = print_module(module)
        operands = lir_operands(module, bundle.metadata.layers)
    except UserError as error:
        text = str(error)
    source = tuple(visible_line(line) for line in text.splitlines())
    lines = _layer_lines(bundle, source)
    edges = layer_edges(bundle)
    return Facts(
        edits,
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


def _layer_lines(bundle: Bundle, source: tuple[str, ...]) -> Mapping[int, int]:
    layers = {
        name: layer.index for layer in bundle.metadata.layers for name in (layer.name, *layer.fused)
    }
    numbered = ((number, NUMBERED.match(line)) for number, line in enumerate(source))
    return {n: layers[match[1]] for n, match in numbered if match and match[1] in layers}
