"""Operations on integers: what ONNX calls QLinear, whatever form the file has them in."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from nmpsim.frontends.graph.steps import (
    Constants,
    IntegerOperation,
    Node,
    Quantized,
    quantized,
)
from nmpsim.frontends.unsupported import UnsupportedError


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


Read = Callable[[Node, Constants], IntegerOperation | None]


def _by_form(form: _Form) -> Read:
    def read(node: Node, constants: Constants) -> IntegerOperation | None:
        sources = tuple(
            quantized(constants, *(node.input(3 * i + j) for j in range(3)))
            for i in range(form.sources)
        )
        at = 3 * form.sources if form.result is None else form.result
        if form.result is not None and not node.input(at):
            return None
        result = quantized(constants, node.outputs[0], node.input(at), node.input(at + 1))
        bias = node.input(form.bias) if form.bias is not None else ""
        return IntegerOperation(node, form.kind, sources, _of_one_type(result, sources), bias)

    return read


def _concatenation(node: Node, constants: Constants) -> IntegerOperation:
    result = quantized(constants, node.outputs[0], node.input(0), node.input(1))
    if len(node.inputs) < 5 or len(node.inputs) % 3 != 2:
        raise UnsupportedError(f"{len(node.inputs)} inputs")
    sources = tuple(
        quantized(constants, *node.inputs[i : i + 3]) for i in range(2, len(node.inputs), 3)
    )
    return IntegerOperation(node, "Concat", sources, _of_one_type(result, sources))


def _of_one_type(result: Quantized, sources: tuple[Quantized, ...]) -> Quantized:
    """A result without a zero point is of the first source's type."""
    return attrs.evolve(result, dtype=result.dtype or sources[0].dtype)


QOPERATORS: Mapping[str, Read] = {
    **{op: _by_form(form) for op, form in _FORMS.items()},
    "com.microsoft.QLinearConcat": _concatenation,
}
"""Operator -> what reads its scales; None if its result is real numbers."""
