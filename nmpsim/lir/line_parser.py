"""Grammar of one line: a weight or an instruction."""

from __future__ import annotations

from nmpsim.diagnostics import UserError, fail
from nmpsim.lir.line import Line, Token, TokenKind
from nmpsim.lir.messages import did_you_mean, quote
from nmpsim.lir.nodes import (
    MODULE_ELEMS,
    AttributeValue,
    Instruction,
    Operand,
    Quantization,
    Span,
    TensorType,
    WeightVar,
    find_size_problem,
)
from nmpsim.lir.opcodes import IN, INOUT, OPCODES, OUT
from nmpsim.lir.refused_opcodes import make_opcode_diagnostic

_NUMBERS = (TokenKind.INT, TokenKind.FLOAT)
_TYPE_STARTS = ("<", "[")


def parse_weight(line: Line) -> WeightVar:
    """Parse ``%NAME = WeightVar TYPE const|mutable``."""
    name = line.name()
    line.punctuation("=")
    line.word("WeightVar")
    type = parse_type(line)
    if not (line.at("const") or line.at("mutable")):
        raise line.unexpected("const or mutable")
    constant = line.take().text == "const"
    line.end()
    return WeightVar(name.text, type, constant, line.span(name))


def parse_instruction(line: Line) -> Instruction:
    """Parse ``N %NAME = OPCODE [ pred: P ] OPERANDS { ATTRIBUTES}``."""
    start = line.peek()
    number = line.integer("an instruction number, or }")
    name = line.name()
    line.punctuation("=")
    opcode = _opcode(line)
    predicate = _predicate(line)
    operands = _operands(line)
    attributes, spans = _attributes(line) if line.at("{") else ({}, {})
    line.end()
    return Instruction(
        number, name.text, opcode, operands, attributes, line.span(start), predicate, spans
    )


def _opcode(line: Line) -> str:
    token = line.any_word("an opcode")
    if token.text not in OPCODES:
        raise UserError(make_opcode_diagnostic(token.text, line.place(token)))
    return token.text


def _predicate(line: Line) -> str | None:
    if not line.accept("["):
        return None
    line.word("pred")
    line.punctuation(":")
    if line.peek().kind is TokenKind.NAME:
        name = line.name()
    else:
        name = line.any_word("the predicate's name")
    line.punctuation("]")
    return name.text


def _operands(line: Line) -> tuple[Operand, ...]:
    operands: list[Operand] = []
    if line.peek().kind is TokenKind.AT:
        operands.append(_operand(line))
        while line.accept(","):
            operands.append(_operand(line))
    return tuple(operands)


def _operand(line: Line) -> Operand:
    if line.peek().text not in (IN, OUT, INOUT):
        raise line.unexpected("@in, @out or @inout")
    kind = line.take()
    return Operand(kind.text, line.name().text, line.span(kind))


def _attributes(line: Line) -> tuple[dict[str, AttributeValue], dict[str, Span]]:
    """Parse the attributes; return them by name, and the position of each name."""
    line.punctuation("{")
    attributes: dict[str, AttributeValue] = {}
    spans: dict[str, Span] = {}
    while True:
        key = line.any_word("an attribute's name")
        if key.text in attributes:
            raise fail(
                "LIR008",
                f"attribute {quote(key.text)} is given twice",
                place=line.place(key),
                found=quote(key.text),
                expected="each attribute once",
            )
        line.punctuation(":")
        attributes[key.text] = _value(line)
        spans[key.text] = line.span(key)
        if line.accept("}"):
            return attributes, spans
        if not line.accept(","):
            raise line.unexpected(", or }")


def _value(line: Line) -> AttributeValue:
    token = line.peek()
    if token.kind is TokenKind.INT:
        return line.integer()
    if token.kind is TokenKind.FLOAT:
        return line.real()
    if token.text == "[":
        return _list(line)
    if token.text in (",", "}"):  # an empty text, such as the FileName of debugprint
        return ""
    word = line.any_word("a number, a list, a word or a type")
    if line.peek().text in _TYPE_STARTS:
        return _type_of(line, word)
    return word.text


def _list(line: Line) -> tuple[int, ...] | tuple[float, ...]:
    line.punctuation("[")
    numbers: list[int | float] = []
    while not line.accept("]"):
        if numbers and not line.accept(","):
            raise line.unexpected(", or ]")
        if line.peek().kind not in _NUMBERS:
            raise line.unexpected("a number or ]")
        numbers.append(line.integer() if line.peek().kind is TokenKind.INT else line.real())
    if any(isinstance(number, float) for number in numbers):
        return tuple(float(number) for number in numbers)
    return tuple(int(number) for number in numbers)


def parse_type(line: Line) -> TensorType:
    """Parse ``ELEM[S:scale O:offset][low,high]<dim x dim>``."""
    return _type_of(line, line.any_word("a type"))


def _type_of(line: Line, elem: Token) -> TensorType:
    if elem.text not in MODULE_ELEMS:
        raise fail(
            "LIR001",
            f"unknown element kind {quote(elem.text)}",
            place=line.place(elem),
            found=quote(elem.text),
            expected=", ".join(MODULE_ELEMS),
            hint=did_you_mean(elem.text, MODULE_ELEMS),
        )
    quant = _quantization(line) if line.at("[") else None
    shape, alignments = _shape(line)
    if problem := find_size_problem(shape):
        found, expected = problem
        raise fail(
            "LIR011",
            "the tensor is too large",
            place=line.place(elem),
            found=found,
            expected=expected,
        )
    return TensorType(elem.text, shape, quant, alignments)


def _quantization(line: Line) -> Quantization:
    line.punctuation("[")
    line.word("S", "S:scale")
    line.punctuation(":")
    scale = line.real("the scale")
    line.word("O", "O:offset")
    line.punctuation(":")
    offset = line.integer("the offset, an integer")
    line.punctuation("]")
    line.punctuation("[")
    low = line.real()
    line.punctuation(",")
    high = line.real()
    line.punctuation("]")
    return Quantization(scale, offset, low, high)


def _shape(line: Line) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Parse the dimensions and, if printed, their alignments."""
    line.punctuation("<")
    dims: list[int] = []
    alignments: list[int] = []
    while not line.accept(">"):
        if dims:
            line.word("x", "x or >")
        dims.append(line.integer("a dimension" if dims else "a dimension or >"))
        alignments.append(line.integer("an alignment") if line.accept(":") else 1)
    padded = any(alignment != 1 for alignment in alignments)
    return tuple(dims), tuple(alignments) if padded else ()
