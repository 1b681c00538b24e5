"""A node that is one instruction of LIR, of tensors whose kinds and shapes the file declares."""

from __future__ import annotations

from nmpsim.frontends.graph.lowering import PLAIN, Lowering, Result
from nmpsim.frontends.graph.pointwise import clip
from nmpsim.frontends.graph.steps import Node

INSTRUCTION = "nmpsim.Instruction"
"""Its kind."""


def instruction(graph: Lowering, node: Node) -> Result:
    """The instruction, by the node's attributes.

    ``opcode`` and ``words`` are those of LIR. ``views`` are the shapes in which the instruction has
    its result and its first operands. With ``repeated`` operands become as large as the result.
    ``limits`` are those of a clip after it.
    """
    given, result = node.attributes, node.outputs[0]
    kind, shape = graph.declared(result)
    if given.get("repeated"):
        sides = [graph.broadcast(one, PLAIN, shape, graph.parameters(one)) for one in node.reads]
    else:
        sides = [graph.value(one) for one in node.reads]
    target = graph.target(result, shape, kind)
    limits = given.get("limits")
    made = target if limits is None else graph.temporary(f"{result}_sum", target.type)
    operands = [made, *sides]
    for place, view in enumerate(given.get("views", ())):
        operands[place] = graph.view(operands[place], view)
    graph.add(given["opcode"], result, operands, **given["words"])
    clip(graph, result, made, target, limits)
    return Result()
