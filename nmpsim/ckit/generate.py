"""Generate the C kit from the tables of the instruction set.

``python -m nmpsim.ckit.generate`` writes the files of :data:`GENERATED` to :data:`FOLDER`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from nmpsim.isa import table
from nmpsim.isa.csrs import CsrAddress
from nmpsim.isa.table import (
    CHANNEL_RECORD,
    DESCRIPTORS,
    INSTRUCTIONS,
    KERNEL_RECORDS,
    SCALE_RECORD,
    Descriptor,
    DeviceInstruction,
    HostRegister,
    Word,
)
from nmpsim.views.pages import format_word_limits

FOLDER = Path(__file__).with_name("files")
"""Folder of the files of the kit."""
GENERATED = ("nmp.h", "crt0.S", "nmp.ld")
"""Files that are generated from templates."""
_COUNTERS = (
    ("nmp_cycles", "CYCLE", "cycles since the run began"),
    ("nmp_instructions", "INSTRET", "instructions that this core has executed"),
)
_FILL = {
    "output": "__scratchpad_start",
    "count": "__scratchpad_end - __scratchpad_start",
}
"""Words of the descriptor with which start-up code clears the scratchpad; others are 0."""


def render_file(name: str) -> str:
    """Render a file of the kit from its template and the tables; return its text."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("nmpsim.ckit", "."),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "c_function": lambda one: one.mnemonic.replace(".", "_"),
        "c_name": _name_record,
        "c_type": _get_c_type,
        "descriptor_name": lambda name: _name_record(DESCRIPTORS[name]),
        "insn": format_insn,
        "word_limits": format_word_limits,
    }
    by_name = {one.mnemonic: one for one in INSTRUCTIONS}
    return environment.get_template(f"{name}.jinja").render(
        table=table,
        csr=CsrAddress,
        csrs=tuple(CsrAddress),
        addresses=(
            ("CONTROL_BASE", table.CONTROL_BASE),
            *((f"HOST_{one.name}", int(one)) for one in HostRegister),
            ("SCRATCHPAD_BASE", table.SCRATCHPAD_BASE),
            ("DRAM_BASE", table.DRAM_BASE),
        ),
        enumerations=collect_enumerations(),
        records=(CHANNEL_RECORD, SCALE_RECORD, *DESCRIPTORS.values(), *KERNEL_RECORDS.values()),
        instructions=[one for one in INSTRUCTIONS if one.mnemonic.startswith("nmp.")],
        counters=_COUNTERS,
        fill=by_name["nmp.fill"],
        fill_words=[
            {"name": word.name, "value": _FILL.get(word.name, "0")} for word in DESCRIPTORS["fill"]
        ],
        wait=by_name["nmp.wait"],
        barrier=by_name["nmp.barrier"],
        halt=by_name["nmp.halt"],
    )


def collect_enumerations() -> Mapping[str, tuple[str, ...]]:
    """Return the choices of all enumerated words by the words' names.

    Raises
    ------
    ValueError
        If words of the same name have different choices.
    """
    found: dict[str, tuple[str, ...]] = {}
    for descriptor in (*DESCRIPTORS.values(), *KERNEL_RECORDS.values()):
        for word in descriptor:
            if word.choices and found.setdefault(word.name, word.choices) != word.choices:
                raise ValueError(f"the word {word.name} has several lists of choices")
    return found


def format_insn(instruction: DeviceInstruction, rs1: str = "x0", rs2: str = "x0") -> str:
    """Format an instruction of the custom opcode as an ``.insn`` directive of format R."""
    word = instruction.match
    opcode, funct3, funct7 = word & 0x7F, word >> 12 & 7, word >> 25
    return f".insn r {opcode:#04x}, {funct3}, {funct7}, x0, {rs1}, {rs2}"


def _name_record(record: Descriptor) -> str:
    return f"nmp_{record.name.replace(' ', '_')}_t"


def _get_c_type(word: Word) -> str:
    """Return the C type of a word: a pointer for an address of an operand, or an integer."""
    if word.direction is not None:
        return "const void *" if word.direction.name == "READS" else "void *"
    return "int32_t" if word.signed else "uint32_t"


def main() -> None:
    """Write the generated files of the kit."""
    for name in GENERATED:
        (FOLDER / name).write_text(render_file(name), encoding="utf-8")


if __name__ == "__main__":
    main()
