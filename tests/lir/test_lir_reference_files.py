"""Test that every program printed by Glow parses, verifies and prints unchanged."""

import re
from collections import defaultdict

import pytest
from counted_work import count_calls
from shared_files import shared_names
from tiers import pairwise, program_parts

from nmpsim.lir.opcodes import OPCODES
from nmpsim.lir.parser import parse, parse_file
from nmpsim.lir.printer import format_module
from nmpsim.lir.verify import verify

FILES = shared_names("*.lir.txt")


def remove_comments(text: str) -> str:
    return re.sub(r" *//.*", "", text)


@pytest.mark.parametrize("name", pairwise(FILES, program_parts))
def test_reference_files_survive_a_round_trip(shared, name):
    text = (shared / name).read_text()
    module = parse(text, name)
    verify(module)
    printed = format_module(module)
    assert remove_comments(printed) == remove_comments(text)
    assert parse(printed) == module


def test_printed_sizes_equal_glows_sizes(shared):
    sizes = re.compile(r"// size: \d+")
    for name in FILES:
        text = (shared / name).read_text()
        assert sizes.findall(format_module(parse(text))) == sizes.findall(text)


def test_the_opcode_table_covers_reference_files(shared):
    """Operand kinds, and names and order of the attributes."""
    met: dict[str, set[tuple[tuple[str, ...], tuple[str, ...]]]] = defaultdict(set)
    for name in FILES:
        for i in parse_file(shared / name).instructions:
            met[i.opcode].add((tuple(o.kind for o in i.operands), tuple(i.attributes)))
    assert len(met) > 25
    for opcode, forms in met.items():
        row = OPCODES[opcode]
        kinds = tuple(role.kind for role in row.operands)
        assert forms == {(kinds, tuple(a.name for a in row.attributes if not a.is_extension))}


def test_parsing_takes_time_linear_in_the_length(shared):
    text = max(((shared / name).read_text() for name in FILES), key=len)
    half = text[: text.rindex("\n", 0, len(text) // 2) + 1] + "}\n"
    assert count_calls(parse, text) < 100 * len(text)
    assert count_calls(parse, text) < 3 * count_calls(parse, half)
