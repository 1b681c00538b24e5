"""docs/isa.md and docs/operations.md are what the tables say."""

from pathlib import Path

import pytest

from nmpsim.isa.codec import BY_MNEMONIC, RECORDS
from nmpsim.isa.table import INSTRUCTIONS
from nmpsim.lir.opcodes import OPCODES, REFUSED
from nmpsim.views.pages import format_encoding, render_page

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("name", ["isa", "operations"])
def test_the_page_is_current(name: str) -> None:
    command = f"run: python -m nmpsim.views.pages {name} > docs/{name}.md"
    assert (DOCS / f"{name}.md").read_text() == render_page(name), command


def test_the_isa_page_names_everything() -> None:
    page = render_page("isa")
    for instruction in INSTRUCTIONS:
        assert f"`{instruction.mnemonic}" in page
    for record in RECORDS.values():
        assert all(f"| `{word.name}` |" in page for word in record)


def test_the_operations_page_lists_every_instruction() -> None:
    page = render_page("operations")
    assert all(f"`{name}`" in page for name in (*OPCODES, *REFUSED))


def test_encodings_have_32_bits() -> None:
    assert format_encoding(BY_MNEMONIC["add"]) == "0000000 rs2 rs1 000 rd 0110011"
    assert format_encoding(BY_MNEMONIC["sw"]) == "imm[11:5] rs2 rs1 010 imm[4:0] 0100011"
    assert format_encoding(BY_MNEMONIC["nmp.halt"]) == "0000100 00000 00000 100 00000 0001011"
    assert format_encoding(BY_MNEMONIC["fence"]) == "------- ----- ----- 000 ----- 0001111"
