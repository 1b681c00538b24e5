"""What the integers of each tensor stand for, as far as operators say it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from nmpsim.frontends.graph.steps import (
    LIMITS,
    MOVES,
    Array,
    Graph,
    IntegerOperation,
    Node,
    Quantized,
    Step,
    plain_integers,
    quantized,
)
from nmpsim.frontends.unsupported import UnsupportedError


def parameters_of(graph: Graph, steps: Sequence[Step]) -> dict[str, Quantized]:
    """What integers stand for: as they are made, else as they are read; moves keep it."""
    known: dict[str, Quantized] = {}
    constants = graph.constants
    for step in steps:
        if isinstance(step, IntegerOperation):
            known.setdefault(step.result.name, step.result)
        elif step.op == "QuantizeLinear":
            _learn(known, step.outputs[0], step, constants, "uint8")
        elif step.op == "DynamicQuantizeLinear":
            known |= {name: plain_integers(name, "uint8") for name in step.makes}
    for step in reversed(steps):
        if isinstance(step, IntegerOperation):
            for source in step.sources:
                if source.scales.size == 1:
                    known.setdefault(source.name, source)
        elif step.op == "DequantizeLinear":
            _learn(known, step.inputs[0], step, constants, "")
        elif step.op in MOVES and step.outputs[0] in known:
            known.setdefault(step.inputs[0], known[step.outputs[0]])
    for one in graph.inputs:
        if one.dtype in LIMITS and one.dtype != "int32":
            known.setdefault(one.name, plain_integers(one.name, one.dtype))
    for step in steps:
        if isinstance(step, Node) and step.op in MOVES and step.inputs[0] in known:
            for name in step.outputs:
                known.setdefault(name, known[step.inputs[0]])
    types = {one.name: one.dtype for one in graph.inputs}
    types |= {name: str(values.dtype) for name, values in constants.items()}
    return {
        name: attrs.evolve(one, dtype=one.dtype or types.get(name, "uint8"))
        for name, one in known.items()
    }


def _learn(
    known: dict[str, Quantized],
    name: str,
    node: Node,
    constants: Mapping[str, Array],
    dtype: str,
) -> None:
    """What a conversion says of the tensor on its integer side, if it can be understood."""
    if name in known:
        return
    try:
        found = quantized(constants, name, node.input(1), node.input(2))
    except UnsupportedError:
        return
    if found.scales.size > 1:
        known[name] = plain_integers(name, found.dtype or dtype)
    else:
        known[name] = attrs.evolve(found, dtype=found.dtype or dtype)
