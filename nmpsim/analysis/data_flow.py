"""Data-flow graphs of programs: which instructions or layers read whose results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from nmpsim.bundle import Bundle
from nmpsim.diagnostics import UserError
from nmpsim.interpreter import locate_tensors
from nmpsim.lir.nodes import Module
from nmpsim.lir.opcode import INOUT, OUT
from nmpsim.lir.opcodes import NO_WORK


@attrs.frozen
class DataFlow:
    """Data-flow graph of instructions or layers, identified by their names."""

    sources: Mapping[str, tuple[str, ...]]
    """Node -> names of the nodes and program inputs whose values it reads."""
    outputs: Mapping[str, tuple[str, ...]]
    """Program output -> names of the nodes that write it."""


def build_data_flow(module: Module) -> DataFlow:
    """Build the data-flow graph of a module's instructions, without views and allocations.

    Constants are omitted. A buffer that is written in parts (``inserttensor``, a view) depends on
    all its writers.
    """
    inputs = [weight.name for weight in module.weights if not weight.constant]
    locations = locate_tensors(module)
    holds: dict[str, tuple[str, ...]] = {name: (name,) for name in inputs}
    sources: dict[str, tuple[str, ...]] = {}
    for instruction in module.instructions:
        if instruction.opcode in NO_WORK:
            continue
        places = [(one, locations[one.name].storage) for one in instruction.operands]
        sources[instruction.name] = _unique(
            source
            for one, place in places
            if one.kind not in (OUT, INOUT)
            for source in holds.get(place, ())
        )
        for one, place in places:
            if one.kind == OUT and one.name == place:
                holds[place] = (instruction.name,)
            elif one.kind in (OUT, INOUT):
                holds[place] = _unique((*holds.get(place, ()), instruction.name))
    outputs = {name: tuple(one for one in holds[name] if one != name) for name in inputs}
    return DataFlow(sources, {name: made for name, made in outputs.items() if made})


def build_layer_flow(bundle: Bundle) -> DataFlow:
    """Build the data-flow graph of a bundle's layers.

    Raises
    ------
    UserError
        BUN002, BUN003 or BUN005 if the bundle carries no usable module.
    """
    layers = bundle.metadata.layers
    flow = build_data_flow(bundle.module())
    layer_of = {name: layer.name for layer in layers for name in (layer.name, *layer.fused)}
    sources: dict[str, tuple[str, ...]] = {layer.name: () for layer in layers}
    for name, found in flow.sources.items():
        if name in layer_of:
            layer = layer_of[name]
            read = (layer_of.get(source, source) for source in found)
            sources[layer] = _unique((*sources[layer], *(one for one in read if one != layer)))
    outputs = {
        name: _unique(layer_of.get(one, one) for one in made) for name, made in flow.outputs.items()
    }
    return DataFlow(sources, outputs)


def layer_edges(bundle: Bundle) -> tuple[tuple[int, int], ...]:
    """Return the data-flow edges of a bundle as pairs of layer indices: source and reader.

    Parameters
    ----------
    bundle
        The program.

    Returns
    -------
    tuple of tuple of int
        Pairs (source, reader). Empty if the bundle carries no usable LIR.
    """
    try:
        flow = build_layer_flow(bundle)
    except UserError:
        return ()
    index = {layer.name: layer.index for layer in bundle.metadata.layers}
    return tuple(
        (index[source], index[name])
        for name, sources in flow.sources.items()
        for source in sources
        if source in index
    )


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
