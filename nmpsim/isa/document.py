"""Generator of ``docs/isa.md``: ``python -m nmpsim.isa.document > docs/isa.md``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import attrs

from nmpsim.isa.assembly import PSEUDO_INSTRUCTIONS
from nmpsim.isa.contract import CASES, DEFINED
from nmpsim.isa.csrs import CSR_ROWS
from nmpsim.isa.document_text import (
    CONTRACT,
    CSR_NOTE,
    EXECUTION,
    INTRODUCTION,
    LEFT_OUT,
    LEFT_OUT_NOTE,
    MEMORY_LAYOUTS,
    SCALAR_NOTE,
    SCALES,
    TRAP_NOTE,
    TRAP_VALUES,
    UNIT_NOTES,
)
from nmpsim.isa.exhaustive import make_exhaustive_table
from nmpsim.isa.fields import BitField
from nmpsim.isa.layouts import AccessDirection, Alignment
from nmpsim.isa.profiles import PROFILES_OF, ROWS, ArithmeticProfile, ElementwiseWords
from nmpsim.isa.table import (
    CHANNEL_RECORD,
    CONTROL_BASE,
    CONTROL_BYTES,
    DESCRIPTORS,
    DRAM_BASE,
    INSTRUCTIONS,
    SCALE_RECORD,
    SCRATCHPAD_BASE,
    SEMAPHORES,
    Descriptor,
    DeviceInstruction,
    InstructionFormat,
    TrapCause,
    Unit,
    Word,
)

_DIRECTIONS = make_exhaustive_table(
    f"{__name__}._DIRECTIONS",
    {
        AccessDirection.READS: "read",
        AccessDirection.WRITES: "written",
        AccessDirection.SUMS: "as `part` says",
    },
    AccessDirection,
)
_SHAPE = re.compile(r"(?:\[[^\[\]]+\])+")
"""Pattern of array dimensions, which Markdown would render as links."""


def format_isa_page() -> str:
    """Return the page ``docs/isa.md`` on the instruction set, as Markdown."""
    sections = (
        INTRODUCTION,
        _address_map(),
        _units(),
        EXECUTION.format(semaphores=SEMAPHORES),
        _instructions("Scalar instructions", _scalar(), SCALAR_NOTE),
        _instructions("Tensor and synchronization instructions", _tensor(), ""),
        _pseudo(),
        _csrs(),
        _traps(),
        _left_out(),
        _contract(),
        MEMORY_LAYOUTS,
        _scales(),
        _descriptors(),
        _records(),
    )
    return "\n\n".join(section.strip("\n") for section in sections) + "\n"


def format_encoding(instruction: DeviceInstruction) -> str:
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


def _fixed_at(instruction: DeviceInstruction, bit: int) -> tuple[str, int]:
    """Return the fixed or ignored bits down to the next operand or field border."""
    text = ""
    while bit - len(text) >= 0:
        at = bit - len(text)
        if _operand_at(instruction.format.fields, at) or (text and at in (24, 19, 14, 11, 6)):
            break
        text += "-" if instruction.ignored >> at & 1 else str(instruction.match >> at & 1)
    return text, len(text)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in r) + " |" for r in lines
    )


def _address_map() -> str:
    rows = [
        (f"`{CONTROL_BASE:#010x}`", f"{CONTROL_BYTES} bytes",
         "control and mailbox block: words shared by all cores"),
        (f"`{SCRATCHPAD_BASE:#010x}`", "by device file",
         "the scratchpad of the core"),
        (f"`{DRAM_BASE:#010x}`", "by device file", "shared DRAM; a bundle is loaded at its start"),
    ]  # fmt: skip
    return "## Address map\n\n" + _table(("first address", "size", "what"), rows)


def _units() -> str:
    rows = [(str(u.value), f"`{u.name.lower()}`", UNIT_NOTES[u]) for u in Unit]
    return "## Units\n\n" + _table(("number", "name in `nmp.wait`", "what it does"), rows)


def _scalar() -> Iterator[DeviceInstruction]:
    return (i for i in INSTRUCTIONS if not i.mnemonic.startswith("nmp."))


def _tensor() -> Iterator[DeviceInstruction]:
    return (i for i in INSTRUCTIONS if i.mnemonic.startswith("nmp."))


def _instructions(title: str, instructions: Iterable[DeviceInstruction], note: str) -> str:
    rows = [(f"`{_syntax(i)}`", f"`{format_encoding(i)}`", i.summary) for i in instructions]
    return f"## {title}\n{note}\n" + _table(("assembly", "bits 31 to 0", "what it does"), rows)


def _syntax(instruction: DeviceInstruction) -> str:
    names = [field.name for field in instruction.format.fields]
    if instruction.format in (InstructionFormat.LOAD, InstructionFormat.S):
        names = [names[0], f"{names[1]}({names[2]})"]
    return f"{instruction.mnemonic} {', '.join(names)}".strip()


def _pseudo() -> str:
    rows = [
        (
            f"`{p.mnemonic} {', '.join(p.operands)}`".replace(" `", "`"),
            "; ".join(f"`{line}`" for line in p.expansion),
            "; ".join(f"`{line}`" for line in p.short),
        )
        for p in PSEUDO_INSTRUCTIONS
    ]
    head = ("shorthand", "stands for", "if the value is -2048 to 2047")
    return "## Pseudo-instructions\n\n" + _table(head, rows)


def _csrs() -> str:
    rows = [
        (f"`{csr.value:#05x}`", f"`{csr.name.lower()}`", f"`{row.writable:#x}`", row.summary)
        for csr, row in CSR_ROWS.items()
    ]
    head = ("address", "name", "bits that can be written", "what it holds")
    return f"## Control and status registers\n{CSR_NOTE}\n" + _table(head, rows)


def _traps() -> str:
    rows = [
        (str(cause.value), cause.name.lower().replace("_", " "), TRAP_VALUES[cause])
        for cause in TrapCause
    ]
    return f"## Traps\n{TRAP_NOTE}\n" + _table(("`mcause`", "meaning", "`mtval`"), rows)


def _left_out() -> str:
    head = "## What of the RISC-V manual is left out"
    return f"{head}\n{LEFT_OUT_NOTE}\n" + _table(("what", "instead"), LEFT_OUT)


def _contract() -> str:
    rows = [(c.category.title, c.title, c.simulator, c.found_by.value) for c in CASES]
    head = ("category", "what the program does", "what the simulator does", "stopped by")
    defined = "\n".join(f"- {one}" for one in DEFINED)
    return f"{CONTRACT}\n{_table(head, rows)}\n\nDefined, however, is the following:\n\n{defined}"


def _scales() -> str:
    """Return the section on scales, from the rows of the profiles."""
    sums = [row for row in ROWS if row.sums is not None]
    return SCALES.format(
        profiles=_table(
            ("number", "profile", "whose arithmetic", "how", "instructions"),
            (
                (
                    str(row.number),
                    f"`{row.name}`",
                    row.whose,
                    row.summary,
                    ", ".join(f"`nmp.{name}`" for name in row.instructions),
                )
                for row in ROWS
            ),
        ),
        forms=_by_profile(
            ("profiles", "form", "`scale(x)`"), ROWS, lambda row: (row.form.name, row.form.formula)
        ),
        sums=_by_profile(
            ("profiles", "bias in the channel record", "`bias`", "`out`"),
            sums,
            lambda row: attrs.astuple(row.sums) if row.sums else (),
        ),
        leaky=" and ".join(f"`{row.name}`" for row in sums if row.has_leaky_sums),
        without_gemm=" and ".join(f"`{row.name}`" for row in sums if not row.has_gemm),
        pairs=_table(("profiles", "operation", "words"), _pair_rows()),
        averages=_by_profile(
            ("profiles", "divided"),
            [row for row in ROWS if row.average],
            lambda row: (row.average,),
        ),
        rescales=_by_profile(
            ("profiles", "how"), [row for row in ROWS if row.rescale], lambda row: (row.rescale,)
        ),
        formulas=Path(__file__).with_name("formulas.toml").read_text(encoding="utf-8"),
    )


def _by_profile(
    head: Sequence[str],
    rows: Iterable[ArithmeticProfile],
    of: Callable[[ArithmeticProfile], tuple[str, ...]],
) -> str:
    """Return a table of profiles; profiles with equal cells share a line."""
    names: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        names.setdefault(of(row), []).append(f"`{row.name}`")
    return _table(head, ((", ".join(who), *cells) for cells, who in names.items()))


def _pair_rows() -> Iterator[tuple[str, ...]]:
    """Yield the lines of elementwise operations; profiles with equal words share them."""
    names: dict[tuple[ElementwiseWords, ...], list[str]] = {}
    for row in ROWS:
        if row.pairs:
            names.setdefault(row.pairs, []).append(f"`{row.name}`")
    for pairs, who in names.items():
        for number, pair in enumerate(pairs):
            yield ("" if number else ", ".join(who)), ", ".join(pair.operations), pair.words


def _descriptors() -> str:
    users: dict[str, list[str]] = {}
    for instruction in INSTRUCTIONS:
        if instruction.descriptor is not None:
            users.setdefault(instruction.descriptor, []).append(f"`{instruction.mnemonic}`")
    parts = [
        _record(f"`{name}`, for {', '.join(users[name])}", record)
        for name, record in DESCRIPTORS.items()
    ]
    head = (
        "## Descriptors\n\nA descriptor has 32-bit little-endian words at an address that is a "
        "multiple of 4. Words are\nchecked when the instruction is issued; the column *may be* is "
        "empty if any value is valid.\n[Operands and limits](#how-a-program-executes) describes "
        "relations between words."
    )
    return "\n\n".join((head, *parts))


def _records() -> str:
    head = (
        "## Records\n\nArrays of these records are in the scratchpad: channel records at a "
        "multiple of 8, scale\nrecords at a multiple of 4."
    )
    return "\n\n".join((head, *(_record(r.name, r) for r in (CHANNEL_RECORD, SCALE_RECORD))))


def _record(title: str, record: Descriptor) -> str:
    rows = [
        (
            f"{4 * index}",
            f"`{word.name}`",
            _kind(word),
            _limits(record, word),
            _SHAPE.sub(r"`\g<0>`", word.summary),
        )
        for index, word in enumerate(record)
    ]
    table = _table(("byte", "word", "kind", "may be", "meaning"), rows)
    return f"### {title}\n\n{record.summary} {record.nbytes} bytes.\n\n{table}"


def _kind(word: Word) -> str:
    if word.choices:
        return ", ".join(f"{n} `{choice}`" for n, choice in enumerate(word.choices))
    if word.direction is not None:
        return f"address, {_DIRECTIONS[word.direction]}"
    return "signed" if word.signed else "unsigned"


def _limits(record: Descriptor, word: Word) -> str:
    """Return the valid values of a word; empty if any value is valid."""
    said = []
    if word.name == "profile":
        said.append(", ".join(f"`{profile}`" for profile in PROFILES_OF[record.name]))
    elif word.values:
        said.append(", ".join(map(str, word.values)))
    elif word.least is not None and word.most is not None:
        said.append(f"{_power(word.least)} to {_power(word.most)}")
    elif word.is_element:
        said.append("a value of the element")
    if word.alignment is not Alignment.NONE:
        said.append(word.alignment.value)
    if word.is_optional:
        said.append("or 0")
    return ", ".join(said)


def _power(number: int) -> str:
    """Return a number as text, large powers of two as ``2^n``."""
    size = abs(number)
    if size < 1024 or size & (size - 1):
        return str(number)
    return f"{'-' if number < 0 else ''}2^{size.bit_length() - 1}"


if __name__ == "__main__":
    print(format_isa_page(), end="")
