"""Grammar of one line: a weight or an instruction."""

from __future__ import annotations

from nmpsim.diagnostics import UserError, did_you_mean, fail, quote
from nmpsim.lir.line import LineCursor, LirToken, TokenKind
from nmpsim.lir.nodes import (
    MODULE_ELEMS,
    AttributeValue,
    Instruction,
    Operand,
    Quantization,
    SourcePosition,
    TensorType,
    WeightVar,
    find_size_problem,
)
from nmpsim.lir.opcodes import IN, INOUT, OPCODES, OUT, make_opcode_diagnostic

_NUMBERS = (TokenKind.INT, TokenKind.FLOAT)
_TYPE_STARTS = ("<", "[")


def parse_weight(line: LineCursor) -> WeightVar:
    """Parse a weight: ``%NAME = WeightVar TYPE const|mutable``."""
    name = line.expect_name()
    line.expect("=")
    line.expect("WeightVar")
    type = parse_type(line)
    if not (line.is_next("const") or line.is_next("mutable")):
        raise line.make_error("const or mutable")
    constant = line.advance().text == "const"
    line.expect_end()
    return WeightVar(name.text, type, constant, line.get_position(name))


def parse_instruction(line: LineCursor) -> Instruction:
    """Parse an instruction: ``N %NAME = OPCODE [ pred: P ] OPERANDS { ATTRIBUTES}``."""
    start = line.peek()
    number = line.expect_integer("an instruction number, or }")
    name = line.expect_name()
    line.expect("=")
    opcode = _opcode(line)
    predicate = _predicate(line)
    operands = _operands(line)
    attributes, spans = _attributes(line) if line.is_next("{") else ({}, {})
    line.expect_end()
    return Instruction(
        number, name.text, opcode, operands, attributes, line.get_position(start), predicate, spans
    )


def _opcode(line: LineCursor) -> str:
    token = line.expect_word("an opcode")
    if token.text not in OPCODES:
        raise UserError(make_opcode_diagnostic(token.text, line.get_place(token)))
    return token.text


def _predicate(line: LineCursor) -> str | None:
    if not line.accept("["):
        return None
    line.expect("pred")
    line.expect(":")
    if line.peek().kind is TokenKind.NAME:
        name = line.expect_name()
    else:
        name = line.expect_word("the predicate's name")
    line.expect("]")
    return name.text


def _operands(line: LineCursor) -> tuple[Operand, ...]:
    operands: list[Operand] = []
    if line.peek().kind is TokenKind.AT:
        operands.append(_operand(line))
        while line.accept(","):
            operands.append(_operand(line))
    return tuple(operands)


def _operand(line: LineCursor) -> Operand:
    if line.peek().text not in (IN, OUT, INOUT):
        raise line.make_error("@in, @out or @inout")
    kind = line.advance()
    return Operand(kind.text, line.expect_name().text, line.get_position(kind))


def _attributes(line: LineCursor) -> tuple[dict[str, AttributeValue], dict[str, SourcePosition]]:
    """Parse the attributes; return them by name, and the position of each name."""
    line.expect("{")
    attributes: dict[str, AttributeValue] = {}
    spans: dict[str, SourcePosition] = {}
    while True:
        key = line.expect_word("an attribute's name")
        if key.text in attributes:
            raise fail(
                "LIR008",
                f"attribute {quote(key.text)} is given twice",
                place=line.get_place(key),
                found=quote(key.text),
                expected="each attribute at most once",
            )
        line.expect(":")
        attributes[key.text] = _value(line)
        spans[key.text] = line.get_position(key)
        if line.accept("}"):
            return attributes, spans
        if not line.accept(","):
            raise line.make_error(", or }")


def _value(line: LineCursor) -> AttributeValue:
    token = line.peek()
    if token.kind is TokenKind.INT:
        return line.expect_integer()
    if token.kind is TokenKind.FLOAT:
        return line.expect_number()
    if token.text == "[":
        return _list(line)
    if token.text in (",", "}"):  # an empty text, such as the FileName of debugprint
        return ""
    word = line.expect_word("a number, a list, a word or a type")
    if line.peek().text in _TYPE_STARTS:
        return _type_of(line, word)
    return word.text


def _list(line: LineCursor) -> tuple[int, ...] | tuple[float, ...]:
    line.expect("[")
    numbers: list[int | float] = []
    while not line.accept("]"):
        if numbers and not line.accept(","):
            raise line.make_error(", or ]")
        if line.peek().kind not in _NUMBERS:
            raise line.make_error("a number or ]")
        numbers.append(
            line.expect_integer() if line.peek().kind is TokenKind.INT else line.expect_number()
        )
    if any(isinstance(number, float) for number in numbers):
        return tuple(float(number) for number in numbers)
    return tuple(int(number) for number in numbers)


def parse_type(line: LineCursor) -> TensorType:
    """Parse a tensor type: ``ELEM[S:scale O:offset][low,high]<dim x dim>``."""
    return _type_of(line, line.expect_word("a type"))


def _type_of(line: LineCursor, elem: LirToken) -> TensorType:
    if elem.text not in MODULE_ELEMS:
        raise fail(
            "LIR001",
            f"unknown element kind {quote(elem.text)}",
            place=line.get_place(elem),
            found=quote(elem.text),
            expected=", ".join(MODULE_ELEMS),
            hint=did_you_mean(elem.text, MODULE_ELEMS),
        )
    quant = _quantization(line) if line.is_next("[") else None
    shape, alignments = _shape(line)
    if problem := find_size_problem(shape):
        found, expected = problem
        raise fail(
            "LIR011",
            "the tensor is too large",
            place=line.get_place(elem),
            found=found,
            expected=expected,
        )
    return TensorType(elem.text, shape, quant, alignments)


def _quantization(line: LineCursor) -> Quantization:
    line.expect("[")
    line.expect("S", "S:scale")
    line.expect(":")
    scale = line.expect_number("the scale")
    line.expect("O", "O:offset")
    line.expect(":")
    offset = line.expect_integer("the offset, an integer")
    line.expect("]")
    line.expect("[")
    low = line.expect_number()
    line.expect(",")
    high = line.expect_number()
    line.expect("]")
    return Quantization(scale, offset, low, high)


def _shape(line: LineCursor) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Parse the dimensions and, if printed, their alignments."""
    line.expect("<")
    dims: list[int] = []
    alignments: list[int] = []
    while not line.accept(">"):
        if dims:
            line.expect("x", "x or >")
        dims.append(line.expect_integer("a dimension" if dims else "a dimension or >"))
        alignments.append(line.expect_integer("an alignment") if line.accept(":") else 1)
    padded = any(alignment != 1 for alignment in alignments)
    return tuple(dims), tuple(alignments) if padded else ()
