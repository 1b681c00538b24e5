"""Test that every Glow instruction is executed or refused with a hint."""

from __future__ import annotations

from pathlib import Path

import pytest

from nmpsim.diagnostics import UserError
from nmpsim.kernels.hostops import find_implementation
from nmpsim.lir.nodes import Instruction, Module, SourcePosition
from nmpsim.lir.opcodes import OPCODES, REFUSED
from nmpsim.lir.parser import parse
from nmpsim.lir.verify import verify

GLOW = Path(__file__).with_name("glow_instructions.txt").read_text().split()
"""From tools/ClassGen/InstrGen.cpp of pytorch/glow 05dd99b, with the gradients it adds and the
instructions of the CPU and OpenCL backends."""
OWN: set[str] = set()
"""Opcodes that Glow does not have."""
NO_WORK = {"allocactivation", "deallocactivation", "tensorview", "debugprint"}


def program(opcode: str) -> str:
    return "\n".join(
        [
            "function net",
            "declare {",
            "  %x = WeightVar float<2> mutable // size: 8",
            "",
            "  ; size = 8 bytes",
            "}",
            "",
            "code {",
            f"  0 %it = {opcode} @out %x, @in %x {{ Whatever: 1}}",
            "}",
            "",
        ]
    )


def only_problem(opcode: str):
    with pytest.raises(UserError) as caught:
        parse(program(opcode), "net.lir")
    (problem,) = caught.value.diagnostics
    return problem


def test_all_documented_instructions_are_known() -> None:
    assert len(GLOW) == 172
    assert set(GLOW) | OWN == set(OPCODES) | set(REFUSED)
    assert not set(OPCODES) & set(REFUSED)


def test_every_known_opcode_runs_on_the_host() -> None:
    done = {name for name, row in OPCODES.items() if row.signatures and (row.run or row.formula)}
    assert done == OPCODES.keys() - NO_WORK


@pytest.mark.parametrize("path", sorted({row.run for row in OPCODES.values()} - {""}))
def test_the_function_of_a_row_exists(path: str) -> None:
    assert callable(find_implementation(path))


@pytest.mark.parametrize("opcode", sorted(REFUSED))
def test_unsupported_opcodes_are_refused_by_name(opcode: str) -> None:
    problem = only_problem(opcode)
    assert problem.code == "LIR012"
    assert problem.message == f"{opcode} is not supported"
    assert str(problem.place) == "net.lir:9:11"
    assert problem.found.startswith("an instruction of Glow that cannot be executed: ")
    assert problem.hint


def test_an_unparsed_module_is_refused_by_name() -> None:
    here = SourcePosition(3, 1)
    module = Module("m", (), (Instruction(0, "it", "embedding", (), {}, here),))
    with pytest.raises(UserError) as caught:
        verify(module)
    assert [problem.code for problem in caught.value.diagnostics] == ["LIR012"]


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("maxpol", "Did you mean 'maxpool'?"),
        ("elementadds", "Did you mean 'elementadd'?"),
        ("clop", None),
        ("frobnicate", None),
        ("conv", None),
        ("x" * 100_000, None),
    ],
)
def test_a_hint_needs_a_similar_word(word: str, hint: str | None) -> None:
    problem = only_problem(word)
    assert (problem.code, problem.hint) == ("LIR006", hint)
