"""What the integers of tensors stand for; operators that name their scales, as QLinearConv."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import attrs

from nmpsim.frontends.graph.nodes import (
    LIMITS,
    MOVES,
    Array,
    Constants,
    Graph,
    Integers,
    Node,
    Quantized,
    plain_integers,
    quantized,
)
from nmpsim.frontends.imported_model import UnsupportedError


@attrs.frozen
class _Form:
    """Where an operator with scales among its inputs has what."""

    kind: str
    sources: int
    """How many; each is tensor, scale, zero point, from the first input on."""
    bias: int | None = None
    result: int | None = None
    """Place of its scale, if it is not behind the sources."""


_FORMS = {
    "QLinearConv": _Form("Conv", 2, bias=8),
    "QLinearMatMul": _Form("MatMul", 2),
    "com.microsoft.QGemm": _Form("Gemm", 2, bias=6, result=7),
    "com.microsoft.QLinearAdd": _Form("Add", 2),
    "com.microsoft.QLinearMul": _Form("Mul", 2),
    "com.microsoft.QLinearAveragePool": _Form("AveragePool", 1),
    "com.microsoft.QLinearGlobalAveragePool": _Form("GlobalAveragePool", 1),
    "com.microsoft.QLinearLeakyRelu": _Form("LeakyRelu", 1),
    "com.microsoft.QLinearSigmoid": _Form("Sigmoid", 1),
    "com.microsoft.QLinearSoftmax": _Form("Softmax", 1),
}


Read = Callable[[Node, Constants], Node | None]


def _by_form(form: _Form) -> Read:
    def read(node: Node, constants: Constants) -> Node | None:
        sources = tuple(
            quantized(constants, *(node.input(3 * i + j) for j in range(3)))
            for i in range(form.sources)
        )
        at = 3 * form.sources if form.result is None else form.result
        if form.result is not None and not node.input(at):
            return None
        result = quantized(constants, node.outputs[0], node.input(at), node.input(at + 1))
        bias = node.input(form.bias) if form.bias is not None else ""
        made = _of_one_type(result, sources)
        return attrs.evolve(node, integers=Integers(form.kind, sources, made, bias))

    return read


def _concatenation(node: Node, constants: Constants) -> Node:
    result = quantized(constants, node.outputs[0], node.input(0), node.input(1))
    if len(node.inputs) < 5 or len(node.inputs) % 3 != 2:
        raise UnsupportedError(f"{len(node.inputs)} inputs")
    sources = tuple(
        quantized(constants, *node.inputs[i : i + 3]) for i in range(2, len(node.inputs), 3)
    )
    integers = Integers("Concat", sources, _of_one_type(result, sources))
    return attrs.evolve(node, integers=integers)


def _of_one_type(result: Quantized, sources: tuple[Quantized, ...]) -> Quantized:
    """A result without a zero point is of the first source's type."""
    return attrs.evolve(result, dtype=result.dtype or sources[0].dtype)


QOPERATORS: Mapping[str, Read] = {
    **{op: _by_form(form) for op, form in _FORMS.items()},
    "com.microsoft.QLinearConcat": _concatenation,
}
"""Operator -> what reads its scales; None if its result is real numbers."""


def parameters_of(graph: Graph, steps: Sequence[Node]) -> dict[str, Quantized]:
    """What integers stand for: as they are made, else as they are read; moves keep it."""
    known: dict[str, Quantized] = {}
    constants = graph.constants
    for step in steps:
        if step.integers:
            known.setdefault(step.makes[0], step.integers.result)
        elif step.op == "QuantizeLinear":
            _learn(known, step.outputs[0], step, constants, "uint8")
        elif step.op == "DynamicQuantizeLinear":
            known |= {name: plain_integers(name, "uint8") for name in step.makes}
    for step in reversed(steps):
        if step.integers:
            for source in step.integers.sources:
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
        if not step.integers and step.op in MOVES and step.inputs[0] in known:
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
