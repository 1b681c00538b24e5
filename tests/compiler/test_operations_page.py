"""docs/operations.md is what the tables say."""

from pathlib import Path

from nmpsim.compiler.operations_page import format_operations_page
from nmpsim.lir.opcodes import OPCODES
from nmpsim.lir.refused_opcodes import REFUSED

PAGE = Path(__file__).parents[2] / "docs" / "operations.md"


def test_the_page_is_current() -> None:
    command = "run: python -m nmpsim.compiler.operations_page > docs/operations.md"
    assert PAGE.read_text() == format_operations_page(), command


def test_the_page_lists_every_instruction() -> None:
    text = PAGE.read_text()
    assert all(f"`{name}`" in text for name in (*OPCODES, *REFUSED))
