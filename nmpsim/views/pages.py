"""Generator of docs/isa.md and docs/operations.md from templates of this folder and tables.

``python -m nmpsim.views.pages isa`` prints the page of the template ``isa.md.jinja``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from nmpsim.isa import contract, table
from nmpsim.isa.assembly import PSEUDO_INSTRUCTIONS
from nmpsim.isa.csrs import CSR_ROWS
from nmpsim.isa.fields import BitField
from nmpsim.isa.layouts import AccessDirection, Alignment
from nmpsim.isa.profiles import PROFILES_OF, ROWS, ArithmeticProfile
from nmpsim.lir.opcode import Opcode
from nmpsim.lir.opcodes import NO_WORK, OPCODES, REFUSED
from nmpsim.report.fields import get_path_value
from nmpsim.views.templates import make_environment

_DIRECTIONS = {
    AccessDirection.READS: "read",
    AccessDirection.WRITES: "written",
    AccessDirection.SUMS: "as `part` says",
}
_FORMULAS = Path(table.__file__).with_name("formulas.toml")
_SHAPE = re.compile(r"(?:\[[^\[\]]+\])+")
"""Pattern of array dimensions, which Markdown would render as links."""


def render_page(name: str) -> str:
    """Generate the reference page ``docs/NAME.md`` from its template and nmpsim's tables."""
    from nmpsim.compiler.placement import KINDS_ON_THE_DEVICE

    environment = make_environment("md")
    environment.filters |= {
        "code": "`{}`".format,
        "code_shapes": lambda text: _SHAPE.sub(r"`\g<0>`", text),
        "dtypes": format_dtypes,
        "encoding": format_encoding,
        "group_profiles": group_profiles,
        "syntax": format_syntax,
        "word_limits": format_word_limits,
        "word_type": format_word_type,
    }
    page: str = environment.get_template(f"{name}.md.jinja").render(
        contract=contract,
        csrs=CSR_ROWS,
        device_kinds=KINDS_ON_THE_DEVICE,
        formulas=_FORMULAS.read_text(encoding="utf-8"),
        no_work=NO_WORK,
        opcodes=OPCODES,
        profiles=ROWS,
        pseudo_instructions=PSEUDO_INSTRUCTIONS,
        refused=REFUSED,
        table=table,
    )
    return page


def format_encoding(instruction: table.DeviceInstruction) -> str:
    """Format bits 31 to 0 of an instruction: operands, fixed bits, and ``-`` for ignored bits."""
    parts: list[str] = []
    bit = 31
    while bit >= 0:
        text, width = _operand_at(instruction.format.fields, bit) or _fixed_at(instruction, bit)
        parts.append(text)
        bit -= width
    return " ".join(parts)


def _operand_at(fields: Sequence[BitField], bit: int) -> tuple[str, int] | None:
    """Return the operand piece whose highest bit this is, and its width."""
    for field in fields:
        for piece in field.pieces:
            if piece.word_bit + piece.width - 1 == bit:
                whole = len(field.pieces) == 1 and piece.value_bit == 0
                high = piece.value_bit + piece.width - 1
                bits = f"{high}:{piece.value_bit}" if piece.width > 1 else f"{high}"
                return (field.name if whole else f"{field.name}[{bits}]"), piece.width
    return None


def _fixed_at(instruction: table.DeviceInstruction, bit: int) -> tuple[str, int]:
    """Return the fixed or ignored bits down to the next operand or field border."""
    text = ""
    while bit - len(text) >= 0:
        at = bit - len(text)
        if _operand_at(instruction.format.fields, at) or (text and at in (24, 19, 14, 11, 6)):
            break
        text += "-" if instruction.ignored >> at & 1 else str(instruction.match >> at & 1)
    return text, len(text)


def format_syntax(instruction: table.DeviceInstruction) -> str:
    """Format the mnemonic and operands of an instruction as in assembly."""
    names = [field.name for field in instruction.format.fields]
    if instruction.format in (table.InstructionFormat.LOAD, table.InstructionFormat.S):
        names = [names[0], f"{names[1]}({names[2]})"]
    return f"{instruction.mnemonic} {', '.join(names)}".strip()


def format_word_type(word: table.Word) -> str:
    """Format the type of a descriptor word: choices, access to an operand, or sign."""
    if word.choices:
        return ", ".join(f"{n} `{choice}`" for n, choice in enumerate(word.choices))
    if word.direction is not None:
        return f"address, {_DIRECTIONS[word.direction]}"
    return "signed" if word.signed else "unsigned"


def format_word_limits(word: table.Word, record: table.Descriptor) -> str:
    """Format the valid values of a descriptor word, or return "" if all values are valid."""
    limits = []
    if word.name == "profile":
        limits.append(", ".join(f"`{profile}`" for profile in PROFILES_OF[record.name]))
    elif word.values:
        limits.append(", ".join(map(str, word.values)))
    elif word.least is not None and word.most is not None:
        limits.append(f"{_format_power(word.least)} to {_format_power(word.most)}")
    elif word.is_element:
        limits.append("a value of the element")
    if word.alignment is not Alignment.NONE:
        limits.append(word.alignment.value)
    if word.is_optional:
        limits.append("or 0")
    return ", ".join(limits)


def _format_power(number: int) -> str:
    """Format a number, large powers of two as ``2^n``."""
    size = abs(number)
    if size < 1024 or size & (size - 1):
        return str(number)
    return f"{'-' if number < 0 else ''}2^{size.bit_length() - 1}"


def group_profiles(
    rows: Iterable[ArithmeticProfile], *paths: str
) -> Iterable[tuple[str, tuple[Any, ...]]]:
    """Group profiles that have equal attributes; return the names and attributes of each group."""
    names: dict[tuple[Any, ...], list[str]] = {}
    for row in rows:
        key = tuple(get_path_value(row, path) for path in paths)
        names.setdefault(key, []).append(f"`{row.name}`")
    return [(", ".join(who), key) for key, who in names.items()]


def format_dtypes(opcode: Opcode) -> str:
    """Format the dtypes of an operation's first input, or of its result if it has no input."""
    kinds = [role.kind for role in opcode.operands]
    first = next((i for i, kind in enumerate(kinds) if kind != "@out"), 0)
    return " ".join(sorted({name for one in opcode.signatures for name in one.operands[first]}))


if __name__ == "__main__":
    sys.stdout.write(render_page(sys.argv[1]))
