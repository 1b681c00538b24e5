"""A node that is one instruction of LIR, of tensors whose kinds and shapes the file declares."""

from __future__ import annotations

from nmpsim.frontends.graph.lowering import LAST, PLAIN
from nmpsim.frontends.graph.operation import Made, Operation

INSTRUCTION = "nmpsim.Instruction"
"""Its kind."""


def instruction(op: Operation) -> Made:
    """The instruction, by the node's attributes.

    ``opcode`` and ``words`` are those of LIR. ``views`` are the shapes in which the instruction has
    its result and its first operands. With ``repeated`` operands become as large as the result.
    ``limits`` are those of a clip after it, ``numerics`` is the profile of the layer, if it is not
    the model's. Images have their channels last if the instruction wants it (``image``), or if
    that is how they are and no order is wanted (``views``, ``plain``).
    """
    given, graph = op.attributes, op.graph
    op.result, shape = graph.declared(op.name)
    op.limits, views = given.get("limits"), given.get("views", ())
    layout = graph.layout(*op.names)
    if given.get("image"):
        layout = LAST
    elif given.get("plain") or views:
        layout = PLAIN
    op.layout = layout
    if given.get("repeated"):
        wanted = [graph.parameters(name) for name in op.names]
        sides = [
            graph.broadcast(*one, shape, kind)
            for one, kind in zip(((name, layout) for name in op.names), wanted, strict=True)
        ]
    else:
        sides = [graph.value(name, layout) for name in op.names]
    for place, view in enumerate(views[1:]):
        sides[place] = op.view(sides[place], view)
    held = op.held(shape)
    made = op.make(given["opcode"], *sides, shape=views[0] if views else held, **given["words"])
    if given.get("numerics"):
        graph.numerics[graph.builder.names[-1]] = given["numerics"]
    return op.clipped(op.view(made, held))
