"""Assembler and disassembler of single instructions.

:mod:`nmpsim.bundle.assembly` handles whole programs with sections, directives and labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from nmpsim.diagnostics import UserError, list_alternatives
from nmpsim.isa.codec import BY_MNEMONIC, DecodedInstruction, decode, encode
from nmpsim.isa.expressions import (
    Cursor,
    Expression,
    ExpressionToken,
    Scope,
    SourceError,
    make_constant,
    make_unknown_name_error,
    parse_expression,
    tokenize,
)
from nmpsim.isa.fields import BitField
from nmpsim.isa.table import (
    IMM_U,
    REGISTERS,
    CsrAddress,
    DeviceInstruction,
    InstructionFormat,
    Unit,
)

REGISTER_NUMBERS: dict[str, int] = {
    **{f"x{n}": n for n in range(32)},
    **{name: n for n, name in enumerate(REGISTERS)},
    "fp": 8,
}
CSR_NAMES: dict[str, int] = {csr.name.lower(): csr.value for csr in CsrAddress}
UNIT_NAMES: dict[str, int] = {unit.name.lower(): unit.value for unit in Unit}
_NAMED_VALUES = {"csr": CSR_NAMES, "unit": UNIT_NAMES}
_REGISTER_FIELDS = ("rd", "rs1", "rs2")
_MEMORY_FORMATS = (InstructionFormat.LOAD, InstructionFormat.S)


@attrs.frozen
class PseudoInstruction:
    """A pseudo-instruction and the instructions that replace it."""

    mnemonic: str
    operands: tuple[str, ...]
    expansion: tuple[str, ...]
    short: tuple[str, ...] = ()
    """Replacement if the last operand is a number from -2048 to 2047; empty if there is none."""


_ABSOLUTE = ("lui rd, %hi(value)", "addi rd, rd, %lo(value)")
_COUNTERS = ("cycle", "cycleh", "time", "timeh", "instret", "instreth")

PSEUDO_INSTRUCTIONS: tuple[PseudoInstruction, ...] = (
    PseudoInstruction("nop", (), ("addi zero, zero, 0",)),
    PseudoInstruction("mv", ("rd", "rs"), ("addi rd, rs, 0",)),
    PseudoInstruction("li", ("rd", "value"), _ABSOLUTE, ("addi rd, zero, value",)),
    PseudoInstruction("la", ("rd", "value"), _ABSOLUTE),
    PseudoInstruction("j", ("target",), ("jal zero, target",)),
    PseudoInstruction("call", ("target",), ("jal ra, target",)),
    PseudoInstruction("jr", ("rs",), ("jalr zero, 0(rs)",)),
    PseudoInstruction("ret", (), ("jalr zero, 0(ra)",)),
    PseudoInstruction("beqz", ("rs", "target"), ("beq rs, zero, target",)),
    PseudoInstruction("bnez", ("rs", "target"), ("bne rs, zero, target",)),
    PseudoInstruction("csrr", ("rd", "csr"), ("csrrs rd, csr, zero",)),
    PseudoInstruction("csrw", ("csr", "rs"), ("csrrw zero, csr, rs",)),
    *(PseudoInstruction(f"rd{name}", ("rd",), (f"csrrs rd, {name}, zero",)) for name in _COUNTERS),
)
_PSEUDO = {p.mnemonic: p for p in PSEUDO_INSTRUCTIONS}


@attrs.frozen
class PendingInstruction:
    """A parsed instruction whose operands may contain unresolved symbols."""

    instruction: DeviceInstruction
    operands: Mapping[str, Expression]
    column: int

    def encode_word(self, pc: int, scope: Scope) -> int:
        """Encode the instruction at address ``pc`` as a word; ``scope`` returns values of symbols.

        Parameters
        ----------
        pc
            Address of the instruction; operands of branches are target addresses.
        scope
            Function that returns the value of a symbol.
        """
        values = {}
        for field in self.instruction.format.fields:
            expression = self.operands[field.name]
            value = expression.evaluate(scope)
            if field.name == "offset":
                value -= pc
            elif field is IMM_U:
                value = _upper(value, expression.column)
            _check_field(self.instruction.mnemonic, field, value, expression.column)
            values[field.name] = value
        return encode(self.instruction.mnemonic, values)


def parse_instruction(
    mnemonic: ExpressionToken, tokens: Sequence[ExpressionToken], end_column: int, known: Scope
) -> list[PendingInstruction]:
    """Parse an instruction, or expand a pseudo-instruction; return the resulting instructions.

    Parameters
    ----------
    mnemonic
        Token of the mnemonic.
    tokens
        Tokens of the operands.
    end_column
        Column after the statement, for errors.
    known
        Function that returns the value of a symbol known at this point, which ``li`` needs.

    Returns
    -------
    list of PendingInstruction
        The instruction, or those that replace a pseudo-instruction.
    """
    pseudo = _PSEUDO.get(mnemonic.text)
    if pseudo is not None:
        return _expand(pseudo, mnemonic, tokens, end_column, known)
    instruction = BY_MNEMONIC.get(mnemonic.text)
    if instruction is None:
        raise make_unknown_name_error(
            "instruction",
            mnemonic,
            [*BY_MNEMONIC, *_PSEUDO],
            "See docs/isa.md for the instructions.",
        )
    cursor = Cursor(tokens, end_column)
    operands = _parse_operands(instruction.format, cursor)
    cursor.expect_end()
    return [PendingInstruction(instruction, operands, mnemonic.column)]


def _expand(
    pseudo: PseudoInstruction,
    mnemonic: ExpressionToken,
    tokens: Sequence[ExpressionToken],
    end_column: int,
    known: Scope,
) -> list[PendingInstruction]:
    given = _split_operands(tokens)
    if len(given) != len(pseudo.operands):
        raise SourceError(
            "ASM001",
            f"{pseudo.mnemonic} has the wrong number of operands",
            mnemonic.column,
            found=f"{len(given)} operands",
            expected=f"{len(pseudo.operands)} operands: {', '.join(pseudo.operands)}"
            if pseudo.operands
            else "no operands",
        )
    arguments = dict(zip(pseudo.operands, given, strict=True))
    lines = pseudo.expansion
    if pseudo.short and _fits_short(arguments[pseudo.operands[-1]], end_column, known):
        lines = pseudo.short
    expanded = []
    for line in lines:
        head, *rest = tokenize(line)
        real = [t for token in rest for t in arguments.get(token.text, [token])]
        head = attrs.evolve(head, column=mnemonic.column)
        expanded += parse_instruction(head, real, end_column, known)
    return expanded


def _fits_short(tokens: Sequence[ExpressionToken], end_column: int, known: Scope) -> bool:
    cursor = Cursor(tokens, end_column)
    value = parse_expression(cursor)
    cursor.expect_end()
    number = value.evaluate(known)
    if not -(1 << 31) <= number < 1 << 32:
        raise SourceError(
            "ASM003",
            "the value does not fit a 32-bit register",
            value.column,
            found=number,
            expected=f"{-(1 << 31)} to {(1 << 32) - 1}",
        )
    return -2048 <= number <= 2047


def _split_operands(tokens: Sequence[ExpressionToken]) -> list[list[ExpressionToken]]:
    if not tokens:
        return []
    parts: list[list[ExpressionToken]] = [[]]
    for token in tokens:
        if token.kind == "mark" and token.text == ",":
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def _parse_operands(form: InstructionFormat, cursor: Cursor) -> dict[str, Expression]:
    if form in _MEMORY_FORMATS:
        return _parse_memory_operands(form, cursor)
    operands = {}
    for index, field in enumerate(form.fields):
        if index:
            cursor.expect(",")
        operands[field.name] = _parse_operand(field, cursor)
    return operands


def _parse_memory_operands(form: InstructionFormat, cursor: Cursor) -> dict[str, Expression]:
    """Parse ``register, offset(base)``; the offset is optional."""
    register, offset, base = form.fields
    operands = {register.name: _parse_operand(register, cursor)}
    cursor.expect(",")
    zero = make_constant(0, cursor.column)
    operands[offset.name] = zero if cursor.next_is("(") else parse_expression(cursor)
    cursor.expect("(")
    operands[base.name] = _parse_operand(base, cursor)
    cursor.expect(")")
    return operands


def _parse_operand(field: BitField, cursor: Cursor) -> Expression:
    if field.name in _REGISTER_FIELDS:
        token = cursor.read_token("name", "a register")
        if token.text not in REGISTER_NUMBERS:
            raise make_unknown_name_error(
                "register", token, REGISTER_NUMBERS, "Use x0 to x31, or an ABI name such as a0."
            )
        return make_constant(REGISTER_NUMBERS[token.text], token.column)
    names = _NAMED_VALUES.get(field.name)
    if names is None:
        return parse_expression(cursor)
    return _parse_named(field.name, names, cursor)


def _parse_named(what: str, names: Mapping[str, int], cursor: Cursor) -> Expression:
    token = cursor.peek()
    if token is None or token.kind != "name":
        return parse_expression(cursor)
    cursor.read_token("name", what)
    if token.text not in names:
        raise make_unknown_name_error(what, token, names, f"Use {list_alternatives(names)}.")
    return make_constant(names[token.text], token.column)


def _upper(value: int, column: int) -> int:
    """Return the value of ``lui`` or ``auipc``, whose text gives the upper 20 bits only."""
    if not 0 <= value <= 0xF_FFFF:
        raise SourceError(
            "ASM003",
            "the value does not fit 20 bits",
            column,
            found=value,
            expected=f"0 to {0xF_FFFF:#x}",
        )
    return value << 12


def _check_field(mnemonic: str, field: BitField, value: int, column: int) -> None:
    try:
        field.encode(value)
    except UserError as error:
        raise SourceError(
            "ASM003",
            f"the value of {field.name} of {mnemonic} is out of range",
            column,
            found=value,
            expected=error.diagnostics[0].expected,
        ) from error


def disassemble_word(word: int, pc: int = 0, labels: Mapping[int, str] | None = None) -> str:
    """Disassemble an instruction word; return text that assembles to the same word.

    Parameters
    ----------
    word
        The word; ``.word`` is returned for an illegal one.
    pc
        Address of the word.
    labels
        Names of addresses, for targets of branches.
    """
    decoded = decode(word)
    if decoded is None:
        return f".word {word:#010x}"
    text = format_decoded_instruction(decoded, pc, labels or {})
    if encode(decoded.instruction.mnemonic, decoded.operands) != word:
        return f".word {word:#010x}  # {text}"
    return text


def format_decoded_instruction(
    decoded: DecodedInstruction, pc: int, labels: Mapping[int, str]
) -> str:
    """Format a decoded instruction at address ``pc`` as assembly text."""
    form = decoded.instruction.format
    texts = [_operand_text(f, decoded.operands[f.name], pc, labels) for f in form.fields]
    if form in _MEMORY_FORMATS:
        register, offset, base = texts
        texts = [register, f"{offset}({base})"]
    return f"{decoded.instruction.mnemonic} {', '.join(texts)}".rstrip()


def _operand_text(field: BitField, value: int, pc: int, labels: Mapping[int, str]) -> str:
    if field.name in _REGISTER_FIELDS:
        return REGISTERS[value]
    if field.name == "offset":
        target = pc + value
        return labels.get(target) or hex(target)
    for name, number in _NAMED_VALUES.get(field.name, {}).items():
        if number == value:
            return name
    if field is IMM_U:
        return hex(value >> 12)
    return hex(value) if field.name == "csr" else str(value)
