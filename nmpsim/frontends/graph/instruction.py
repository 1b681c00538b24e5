"""A node that is one instruction of LIR, of tensors whose kinds and shapes the file declares."""

from __future__ import annotations

from nmpsim.frontends.graph.lowering import LAST, PLAIN, Lowering, Result
from nmpsim.frontends.graph.pointwise import clip
from nmpsim.frontends.graph.steps import Node

INSTRUCTION = "nmpsim.Instruction"
"""Its kind."""


def instruction(graph: Lowering, node: Node) -> Result:
    """The instruction, by the node's attributes.

    ``opcode`` and ``words`` are those of LIR. ``views`` are the shapes in which the instruction has
    its result and its first operands. With ``repeated`` operands become as large as the result.
    ``limits`` are those of a clip after it, ``numerics`` is the profile of the layer, if it is not
    the model's. Images have their channels last if the instruction wants it (``image``), or if
    that is how they are and no order is wanted (``views``, ``plain``).
    """
    given, result = node.attributes, node.outputs[0]
    kind, shape = graph.declared(result)
    layout = graph.layout(*node.reads)
    if given.get("image"):
        layout = LAST
    elif given.get("plain") or given.get("views"):
        layout = PLAIN
    if given.get("repeated"):
        sides = [graph.broadcast(one, layout, shape, graph.parameters(one)) for one in node.reads]
    else:
        sides = [graph.value(one, layout) for one in node.reads]
    target = graph.target(result, shape, kind, layout)
    limits = given.get("limits")
    made = target if limits is None else graph.temporary(f"{result}_sum", target.type)
    operands = [made, *sides]
    for place, view in enumerate(given.get("views", ())):
        operands[place] = graph.view(operands[place], view)
    layer = graph.add(given["opcode"], result, operands, **given["words"])
    if given.get("numerics"):
        graph.numerics[layer] = given["numerics"]
    clip(graph, result, made, target, limits)
    return Result()
