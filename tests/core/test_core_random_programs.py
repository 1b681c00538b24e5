"""Random scalar programs leave the same machine on both engines."""

from __future__ import annotations

from collections.abc import Mapping

from core_machines import HALT, IMAGE_BASE, SPM, Program, device, load_address, run_both, words
from hypothesis import given
from hypothesis import strategies as st
from tiers import examples

from nmpsim.isa.codec import BY_MNEMONIC
from nmpsim.isa.table import CsrAddress, InstructionFormat

Instruction = tuple[str, Mapping[str, int]]

SPM_POINTER, RAM_POINTER, MAILBOX_POINTER, COUNTER = 28, 29, 30, 31
"""Registers that random instructions only read."""
FREE = st.integers(0, SPM_POINTER - 1)
ANY = st.integers(0, 31)
WORDS = st.integers(0, 0xFFFF_FFFF) | st.sampled_from([0, 1, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF])
IMMEDIATES = st.integers(-2048, 2047)
CSRS = st.sampled_from([int(c) for c in CsrAddress if c not in (CsrAddress.MTVEC, CsrAddress.MEPC)])


def _named(form: InstructionFormat) -> list[str]:
    return [i.mnemonic for i in BY_MNEMONIC.values() if i.format is form]


LOADS = [m for m in _named(InstructionFormat.LOAD) if m != "jalr"]
BRANCHES = _named(InstructionFormat.B)


@st.composite
def operations(draw: st.DrawFn) -> Instruction:
    """Draw an instruction that neither branches nor traps on its operands."""
    form = draw(
        st.sampled_from(
            [InstructionFormat.R] * 4
            + [
                InstructionFormat.I,
                InstructionFormat.SHIFT,
                InstructionFormat.U,
                InstructionFormat.LOAD,
                InstructionFormat.S,
                InstructionFormat.CSR,
                InstructionFormat.CSR_IMM,
            ]
        )
    )
    mnemonic = draw(st.sampled_from(LOADS if form is InstructionFormat.LOAD else _named(form)))
    rd, rs1, rs2 = draw(FREE), draw(ANY), draw(ANY)
    if form is InstructionFormat.R:
        return mnemonic, {"rd": rd, "rs1": rs1, "rs2": rs2}
    if form is InstructionFormat.I:
        return mnemonic, {"rd": rd, "rs1": rs1, "imm": draw(IMMEDIATES)}
    if form is InstructionFormat.SHIFT:
        return mnemonic, {"rd": rd, "rs1": rs1, "shamt": draw(st.integers(0, 31))}
    if form is InstructionFormat.U:
        return mnemonic, {"rd": rd, "imm": draw(WORDS) & 0xFFFF_F000}
    if form in (InstructionFormat.LOAD, InstructionFormat.S):
        base = draw(st.sampled_from([SPM_POINTER, RAM_POINTER, MAILBOX_POINTER]))
        place = {"imm": 4 * draw(st.integers(0, 15)), "rs1": base}
        return mnemonic, place | ({"rd": rd} if form is InstructionFormat.LOAD else {"rs2": rs2})
    if form is InstructionFormat.CSR:
        return mnemonic, {"rd": rd, "csr": draw(CSRS), "rs1": rs1}
    return mnemonic, {"rd": rd, "csr": draw(CSRS), "zimm": draw(st.integers(0, 31))}


@st.composite
def blocks(draw: st.DrawFn) -> list[Instruction]:
    """Draw straight code, code that a branch may skip, or a loop of a few rounds."""
    body = draw(st.lists(operations(), min_size=1, max_size=6))
    kind = draw(st.sampled_from(["straight", "skip", "loop"]))
    if kind == "straight":
        return body
    if kind == "skip":
        condition = {"rs1": draw(ANY), "rs2": draw(ANY), "offset": 4 * len(body) + 4}
        return [(draw(st.sampled_from(BRANCHES)), condition), *body]
    return [
        ("addi", {"rd": COUNTER, "rs1": 0, "imm": draw(st.integers(1, 4))}),
        *body,
        ("addi", {"rd": COUNTER, "rs1": COUNTER, "imm": -1}),
        ("bne", {"rs1": COUNTER, "rs2": 0, "offset": -4 * (len(body) + 1)}),
    ]


@given(st.lists(WORDS, min_size=8, max_size=8), st.lists(blocks(), min_size=1, max_size=8))
@examples(200)
def test_random_programs_agree_on_both_engines(
    values: list[int], code: list[list[Instruction]]
) -> None:
    start = [i for n, value in enumerate(values) for i in load_address(3 * n + 1, value)]
    pointers = (
        load_address(SPM_POINTER, SPM)
        + load_address(RAM_POINTER, 0xA000_0000)
        + load_address(MAILBOX_POINTER, 0x1000_0000)
    )
    body = [instruction for block in code for instruction in block]
    # A read-only CSR may be written to: then the run ends there, on both engines alike.
    run_both(Program(image=words(*start, *pointers, *body, HALT)), expect=None)


@given(st.lists(WORDS, min_size=1, max_size=12), st.booleans())
@examples(200)
def test_random_words_are_code_or_a_trap(code: list[int], handled: bool) -> None:
    """With a handler: it halts, at the second instruction of the image."""
    start = [("jal", {"rd": 0, "offset": 8}), HALT]
    if handled:
        start += [*load_address(5, IMAGE_BASE + 4), ("csrrw", {"rd": 0, "csr": 0x305, "rs1": 5})]
    image = words(*start) + b"".join(word.to_bytes(4, "little") for word in code) + words(HALT)
    run_both(Program(image=image, config=device(limits_cycles=2000)), expect=None)
