"""Directives of the assembler; the table ``DIRECTIVES`` is at the end."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from nmpsim.bundle import elf
from nmpsim.bundle.assembly.draft import AssemblySection, LayerRecord, ProgramDraft, Statement
from nmpsim.bundle.layout import CONSTANTS, DEBUG_SECTIONS, DESCRIPTORS, PART_ALIGNMENT, TEXT
from nmpsim.diagnostics import UserError, did_you_mean, list_alternatives
from nmpsim.isa.codec import encode_descriptor, get_word_range
from nmpsim.isa.expressions import (
    Cursor,
    Expression,
    ExpressionToken,
    Scope,
    SourceError,
    make_constant,
    make_unknown_name_error,
    parse_expression,
)
from nmpsim.isa.table import DESCRIPTORS as DESCRIPTOR_KINDS
from nmpsim.isa.table import Descriptor, Word
from nmpsim.lir.line import LineCursor
from nmpsim.lir.line_parser import parse_type
from nmpsim.lir.nodes import TensorType

Directive = Callable[[ProgramDraft, Statement, Cursor], None]

_SCALE_WITHOUT_RANGE = re.compile(r"(\[S:[^\]]*\])(?!\[)")
_RAW_WORDS = re.compile(r"\s*\.word 0x[0-9a-f]{8}(?:, 0x[0-9a-f]{8})*\s*")
_NOP = (0x13).to_bytes(4, "little")


def _switch(section: str, draft: ProgramDraft, _: Statement, cursor: Cursor) -> None:
    cursor.expect_end()
    draft.current = section


def _section(draft: ProgramDraft, _: Statement, cursor: Cursor) -> None:
    """``.section NAME``: continue in a debug section."""
    name = cursor.read_token("name", "a section")
    cursor.expect_end()
    if name.text not in DEBUG_SECTIONS:
        raise SourceError(
            "ASM002",
            f"unknown section {name.text!r}",
            name.column,
            expected=list_alternatives(DEBUG_SECTIONS),
        )
    draft.debug.setdefault(name.text, AssemblySection())
    draft.current = name.text


def _values(nbytes: int, draft: ProgramDraft, statement: Statement, cursor: Cursor) -> None:
    """``.byte``, ``.half``, ``.word``: numbers, signed or unsigned."""
    expressions = [parse_expression(cursor)]
    while cursor.accept(","):
        expressions.append(parse_expression(cursor))
    cursor.expect_end()

    def emit(_: int, scope: Scope) -> bytes:
        return b"".join(_value_bytes(e, nbytes, scope) for e in expressions)

    draft.section.append(nbytes * len(expressions), emit, statement)


def _value_bytes(expression: Expression, nbytes: int, scope: Scope) -> bytes:
    low, high = -(1 << (8 * nbytes - 1)), (1 << 8 * nbytes) - 1
    value = _limited(expression, scope, low, high, f"the value does not fit {nbytes} bytes")
    return (value & high).to_bytes(nbytes, "little")


def _limited(expression: Expression, scope: Scope, low: int, high: int, message: str) -> int:
    """Evaluate an expression; raise SourceError (ASM003) if it is out of range."""
    value = expression.evaluate(scope)
    if not low <= value <= high:
        expected = f"{low} to {high}"
        raise SourceError("ASM003", message, expression.column, found=value, expected=expected)
    return value


def _number(draft: ProgramDraft, cursor: Cursor, low: int, high: int) -> int:
    """Parse a number that is known in the first pass, and the end of the line."""
    expression = parse_expression(cursor)
    cursor.expect_end()
    return _limited(expression, draft.get_symbol_value, low, high, "the number is out of range")


def _zero(draft: ProgramDraft, statement: Statement, cursor: Cursor) -> None:
    nbytes = _number(draft, cursor, 0, (1 << 32) - 1)
    draft.section.append(nbytes, lambda _, __: bytes(nbytes), statement)


def _ascii(draft: ProgramDraft, statement: Statement, cursor: Cursor) -> None:
    text = cursor.read_token("name", "quoted text")
    cursor.expect_end()
    if not text.quoted:
        raise SourceError(
            "ASM001",
            "the text is not in quotes",
            text.column,
            found=text.text,
            expected=f'"{text.text}"',
        )
    data = text.text.encode("utf-8", "surrogatepass")
    draft.section.append(len(data), lambda _, __: data, statement)


def _align(draft: ProgramDraft, statement: Statement, cursor: Cursor) -> None:
    """``.align n``: align to 2^n bytes, as GNU's assembler does for RISC-V."""
    _pad(draft, statement, 1 << _number(draft, cursor, 0, PART_ALIGNMENT.bit_length() - 1))


def _balign(draft: ProgramDraft, statement: Statement, cursor: Cursor) -> None:
    """``.balign n``: align to n bytes, a power of two."""
    column = cursor.column
    alignment = _number(draft, cursor, 1, PART_ALIGNMENT)
    if alignment & (alignment - 1):
        message, expected = "the alignment is not a power of two", "a power of two"
        raise SourceError("ASM003", message, column, found=alignment, expected=expected)
    _pad(draft, statement, alignment)


def _pad(draft: ProgramDraft, statement: Statement, alignment: int) -> None:
    """Pad with zeros, or in code with as many ``nop`` as fit."""
    here = draft.section.nbytes
    nbytes = elf.align_up(here, alignment) - here
    whole = _NOP * (nbytes // 4) if draft.current == TEXT else b""
    data = bytes(nbytes - len(whole)) + whole
    draft.section.append(nbytes, lambda _, __: data, statement)


def _descriptor(draft: ProgramDraft, statement: Statement, cursor: Cursor) -> None:
    """``.descriptor KIND, word=value, ...``; words that are not named are 0.

    The descriptor and the labels of its statement go to the section of descriptors, whatever the
    current section is.
    """
    name = cursor.read_token("name", "kind of descriptor")
    kind = DESCRIPTOR_KINDS.get(name.text)
    if kind is None:
        known = f"Use {list_alternatives(DESCRIPTOR_KINDS)}."
        raise make_unknown_name_error("descriptor", name, DESCRIPTOR_KINDS, known)
    values: dict[str, Expression] = {}
    while cursor.accept(","):
        word = _descriptor_word(kind, cursor, values)
        cursor.expect("=")
        values[word.name] = _descriptor_value(word, cursor)
    cursor.expect_end()
    draft.sections[DESCRIPTORS].append(
        kind.nbytes, lambda _, scope: _descriptor_bytes(kind, values, scope), statement
    )


def _descriptor_word(kind: Descriptor, cursor: Cursor, values: dict[str, Expression]) -> Word:
    token = cursor.read_token("name", "a word of the descriptor")
    word = next((w for w in kind if w.name == token.text), None)
    if word is None:
        raise SourceError(
            "ASM002",
            f"descriptor {kind.name} has no word {token.text!r}",
            token.column,
            hint=did_you_mean(token.text, [w.name for w in kind])
            or "See docs/isa.md for the words of this descriptor.",
        )
    if word.name in values:
        message, expected = f"{word.name} is given twice", "each word at most once"
        raise SourceError("ASM002", message, token.column, expected=expected)
    return word


def _descriptor_value(word: Word, cursor: Cursor) -> Expression:
    token = cursor.peek()
    if not word.choices or token is None or token.kind != "name":
        return parse_expression(cursor)
    cursor.read_token("name", "a value")
    if token.text not in word.choices:
        raise SourceError(
            "ASM002",
            f"unknown value {token.text!r} of {word.name}",
            token.column,
            expected=list_alternatives(word.choices),
            hint=did_you_mean(token.text, word.choices),
        )
    return make_constant(word.choices.index(token.text), token.column)


def _descriptor_bytes(kind: Descriptor, values: dict[str, Expression], scope: Scope) -> bytes:
    numbers = {word.name: 0 for word in kind}
    for word in kind:
        if word.name in values:
            message = f"the value of {word.name} is out of range"
            numbers[word.name] = _limited(values[word.name], scope, *get_word_range(word), message)
    return encode_descriptor(kind.name, numbers)


def _variable(role: str, draft: ProgramDraft, statement: Statement, cursor: Cursor) -> None:
    """``.input``, ``.output`` or ``.buffer`` NAME, TYPE: a tensor in read-write memory."""
    name = cursor.read_token("name", "a name")
    cursor.expect(",")
    type = _tensor_type(statement, cursor.column)
    draft.reserve_tensor(name, type)
    if role == "input":
        draft.inputs.append(name.text)
    elif role == "output":
        draft.outputs.append(name.text)


def _tensor_type(statement: Statement, column: int) -> TensorType:
    """Parse the LIR type at the end of a statement; the range after a scale is optional."""
    text = " " * (column - 1) + statement.text[column - 1 :]
    line = LineCursor(_SCALE_WITHOUT_RANGE.sub(r"\1[0,0]", text), statement.line, statement.file)
    try:
        type = parse_type(line)
        line.expect_end()
    except UserError as error:
        first = error.diagnostics[0]
        at = first.place.column if first.place and first.place.column else column
        raise SourceError(
            "ASM001",
            first.message,
            min(at, statement.end_column),
            found=first.found,
            expected=first.expected,
            hint=first.hint or "Write the type as in LIR: i8[S:0.5 O:0]<1 x 4 x 4 x 8>.",
        ) from error
    return type


def _reserve(draft: ProgramDraft, _: Statement, cursor: Cursor) -> None:
    """``.reserve N``: reserve at least N bytes of read-write memory in total."""
    column = cursor.column
    draft.enlarge_memory(_number(draft, cursor, 0, (1 << 32) - 1), column)


def _name_and_value(cursor: Cursor, expected: str) -> tuple[ExpressionToken, Expression]:
    name = cursor.read_token("name", expected)
    cursor.expect(",")
    expression = parse_expression(cursor)
    cursor.expect_end()
    return name, expression


def _set(draft: ProgramDraft, statement: Statement, cursor: Cursor) -> None:
    """``.set NAME, EXPRESSION``: define a symbol."""
    name, expression = _name_and_value(cursor, "a name")
    text = draft.define_symbol(name)
    try:
        draft.numbers[text] = expression.evaluate(draft.get_symbol_value)
    except SourceError:
        draft.deferred[text] = (expression, statement)


def _size(draft: ProgramDraft, statement: Statement, cursor: Cursor) -> None:
    """``.size NAME, BYTES``: set the size of a symbol."""
    name, expression = _name_and_value(cursor, "a symbol")
    draft.sizes.append((name, expression, statement))


def _layer(draft: ProgramDraft, statement: Statement, cursor: Cursor) -> None:
    """``.layer NUMBER, NAME, OP, OUTPUT [, BARRIER]``: declare a layer of the report."""
    number_column = cursor.column
    number = parse_expression(cursor).evaluate(draft.get_symbol_value)
    if number != len(draft.layers):
        raise SourceError(
            "ASM003", "the layers are not numbered in order", number_column,
            found=f"layer {number}", expected=f"layer {len(draft.layers)}",
        )  # fmt: skip
    names = []
    for expected in ("name of the layer", "operation", "symbol of the output"):
        cursor.expect(",")
        names.append(cursor.read_token("name", expected))
    barrier = None
    if cursor.accept(","):
        barrier = _number(draft, cursor, 0, (1 << 32) - 1)
    cursor.expect_end()
    name, op, output = names
    draft.layers.append(LayerRecord(statement, name.text, op.text, output, barrier))


def _entry(draft: ProgramDraft, statement: Statement, cursor: Cursor) -> None:
    """``.entry LABEL``: set the address where all cores start."""
    name = cursor.read_token("name", "a label")
    cursor.expect_end()
    draft.entry = (name, statement)


def _metadata(draft: ProgramDraft, statement: Statement, _: Cursor) -> None:
    """``.metadata JSON``: set all metadata of the bundle; the assembler adds nothing."""
    text = statement.text.split(".metadata", maxsplit=1)[1]
    draft.metadata = (text, statement)


DIRECTIVES: dict[str, Directive] = {
    ".text": partial(_switch, TEXT),
    ".data": partial(_switch, CONSTANTS),
    ".descriptors": partial(_switch, DESCRIPTORS),
    ".section": _section,
    ".byte": partial(_values, 1),
    ".half": partial(_values, 2),
    ".word": partial(_values, 4),
    ".zero": _zero,
    ".ascii": _ascii,
    ".align": _align,
    ".balign": _balign,
    ".descriptor": _descriptor,
    ".input": partial(_variable, "input"),
    ".output": partial(_variable, "output"),
    ".buffer": partial(_variable, "buffer"),
    ".reserve": _reserve,
    ".set": _set,
    ".size": _size,
    ".layer": _layer,
    ".entry": _entry,
    ".metadata": _metadata,
}


def execute_directive(
    name: ExpressionToken,
    draft: ProgramDraft,
    statement: Statement,
    operands: list[ExpressionToken],
) -> None:
    """Execute an assembler directive; raise SourceError if it is unknown or malformed."""
    directive = DIRECTIVES.get(name.text)
    if directive is None:
        hint = "See docs/assembly.md for the directives."
        raise make_unknown_name_error("directive", name, DIRECTIVES, hint)
    directive(draft, statement, statement.make_cursor(operands))


def parse_raw_words(text: str) -> bytes | None:
    """Parse a ``.word`` line of hexadecimal numbers; return its bytes, or None for another line.

    A fast path: the constants of a disassembled bundle are millions of such lines.
    """
    if not _RAW_WORDS.fullmatch(text):
        return None
    numbers = text.replace(".word", "").replace("0x", "").split(",")
    return b"".join(bytes.fromhex(number)[::-1] for number in numbers)
