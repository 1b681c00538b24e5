"""docs/isa.md is what the table says."""

from pathlib import Path

from nmpsim.isa.codec import BY_MNEMONIC, RECORDS
from nmpsim.isa.document import format_encoding, format_isa_page
from nmpsim.isa.table import INSTRUCTIONS

PAGE = Path(__file__).parents[2] / "docs" / "isa.md"


def test_the_page_is_in_step_with_the_table():
    assert PAGE.read_text() == format_isa_page(), "run: python -m nmpsim.isa.document > docs/isa.md"


def test_the_page_names_everything():
    page = format_isa_page()
    for instruction in INSTRUCTIONS:
        assert f"`{instruction.mnemonic}" in page
    for record in RECORDS.values():
        assert all(f"| `{word.name}` |" in page for word in record)


def test_encodings_have_32_bits():
    assert format_encoding(BY_MNEMONIC["add"]) == "0000000 rs2 rs1 000 rd 0110011"
    assert format_encoding(BY_MNEMONIC["sw"]) == "imm[11:5] rs2 rs1 010 imm[4:0] 0100011"
    assert format_encoding(BY_MNEMONIC["nmp.halt"]) == "0000100 00000 00000 100 00000 0001011"
    assert format_encoding(BY_MNEMONIC["fence"]) == "------- ----- ----- 000 ----- 0001111"
