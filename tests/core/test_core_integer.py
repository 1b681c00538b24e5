"""RV32IM arithmetic with results worked out by hand, on both engines."""

from __future__ import annotations

import pytest
from core_machines import HALT, Program, load_address, registers, run_both, words

MIN, MAX, ONES = 0x8000_0000, 0x7FFF_FFFF, 0xFFFF_FFFF

REGISTER_CASES = [
    ("add", 1, 2, 3),
    ("add", MAX, 1, MIN),
    ("add", ONES, 1, 0),
    ("sub", 1, 2, ONES),
    ("sub", MIN, 1, MAX),
    ("sub", 0, MIN, MIN),
    ("sll", 1, 31, MIN),
    ("sll", ONES, 31, MIN),
    ("sll", 3, 32, 3),
    ("sll", 1, ONES, MIN),
    ("sll", 0x1234_5678, 4, 0x2345_6780),
    ("slt", MIN, 0, 1),
    ("slt", 0, MIN, 0),
    ("slt", 5, 5, 0),
    ("slt", ONES, 0, 1),
    ("sltu", MIN, 0, 0),
    ("sltu", 0, MIN, 1),
    ("sltu", ONES, ONES, 0),
    ("sltu", 0, ONES, 1),
    ("xor", 0xFF00_FF00, 0x0FF0_0FF0, 0xF0F0_F0F0),
    ("srl", MIN, 31, 1),
    ("srl", ONES, 4, 0x0FFF_FFFF),
    ("srl", MIN, 32, MIN),
    ("sra", MIN, 31, ONES),
    ("sra", MAX, 31, 0),
    ("sra", MIN, 33, 0xC000_0000),
    ("or", 0xFF00_FF00, 0x0FF0_0FF0, 0xFFF0_FFF0),
    ("and", 0xFF00_FF00, 0x0FF0_0FF0, 0x0F00_0F00),
    ("mul", 7, ONES, 0xFFFF_FFF9),
    ("mul", MIN, MIN, 0),
    ("mul", 0x1234_5678, 0x9ABC_DEF0, 0x242D_2080),
    ("mul", ONES, ONES, 1),
    ("mulh", MIN, MIN, 0x4000_0000),
    ("mulh", MIN, ONES, 0),
    ("mulh", ONES, ONES, 0),
    ("mulh", MAX, MAX, 0x3FFF_FFFF),
    ("mulh", MIN, MAX, 0xC000_0000),
    ("mulhsu", ONES, ONES, ONES),
    ("mulhsu", MIN, ONES, MIN),
    ("mulhsu", MIN, MIN, 0xC000_0000),
    ("mulhsu", MAX, ONES, 0x7FFF_FFFE),
    ("mulhsu", ONES, 1, ONES),
    ("mulhu", ONES, ONES, 0xFFFF_FFFE),
    ("mulhu", MIN, MIN, 0x4000_0000),
    ("mulhu", ONES, 1, 0),
    ("div", 7, 0xFFFF_FFFE, 0xFFFF_FFFD),
    ("div", 0xFFFF_FFF9, 2, 0xFFFF_FFFD),
    ("div", 0xFFFF_FFF9, 0xFFFF_FFFE, 3),
    ("div", MIN, ONES, MIN),
    ("div", MIN, 1, MIN),
    ("div", 5, 0, ONES),
    ("div", MIN, 0, ONES),
    ("div", 0, 5, 0),
    ("divu", ONES, 2, MAX),
    ("divu", MIN, ONES, 0),
    ("divu", 5, 0, ONES),
    ("divu", ONES, ONES, 1),
    ("rem", 7, 0xFFFF_FFFE, 1),
    ("rem", 0xFFFF_FFF9, 2, ONES),
    ("rem", MIN, ONES, 0),
    ("rem", 0xFFFF_FFF9, 0, 0xFFFF_FFF9),
    ("rem", MIN, 0, MIN),
    ("rem", MIN, 3, 0xFFFF_FFFE),
    ("remu", ONES, 2, 1),
    ("remu", MIN, ONES, MIN),
    ("remu", 0xFFFF_FFF9, 0, 0xFFFF_FFF9),
    ("remu", 10, 4, 2),
]

IMMEDIATE_CASES = [
    ("addi", MAX, 1, MIN),
    ("addi", 0, -2048, 0xFFFF_F800),
    ("addi", ONES, 2047, 2046),
    ("slti", MIN, -2048, 1),
    ("slti", 0xFFFF_F800, -2048, 0),
    ("slti", 0, -1, 0),
    ("sltiu", 0, -1, 1),
    ("sltiu", ONES, -1, 0),
    ("sltiu", 0xFFFF_FFFE, -1, 1),
    ("sltiu", 0, 1, 1),
    ("sltiu", 0xFFFF_F7FF, -2048, 1),
    ("xori", 0x0F0F_0F0F, -1, 0xF0F0_F0F0),
    ("ori", 0x0F0F_0F0F, -2048, 0xFFFF_FF0F),
    ("andi", 0xFFFF_FFFF, -2048, 0xFFFF_F800),
    ("andi", 0x1234_5678, 0x0FF, 0x78),
]

SHIFT_CASES = [
    ("slli", 1, 31, MIN),
    ("slli", 0xDEAD_BEEF, 0, 0xDEAD_BEEF),
    ("slli", ONES, 16, 0xFFFF_0000),
    ("srli", MIN, 31, 1),
    ("srli", ONES, 0, ONES),
    ("srai", MIN, 31, ONES),
    ("srai", MAX, 31, 0),
    ("srai", 0x8765_4321, 4, 0xF876_5432),
]

MULTIPLIES = ("mul", "mulh", "mulhsu", "mulhu")
DIVIDES = ("div", "divu", "rem", "remu")


@pytest.mark.parametrize(("mnemonic", "a", "b", "result"), REGISTER_CASES)
def test_register_instructions_compute_results(mnemonic: str, a: int, b: int, result: int) -> None:
    operation = (mnemonic, {"rd": 3, "rs1": 1, "rs2": 2})
    m = run_both(Program(image=words(*load_address(1, a), *load_address(2, b), operation, HALT)))
    assert registers(m)[3] == result
    # Four to load the operands, the operation, the halt; a product takes 3 more, a quotient 32.
    extra = 3 * (mnemonic in MULTIPLIES) + 32 * (mnemonic in DIVIDES)
    assert m.cores.clock[0] == 6 + extra
    assert m.cores.retired[0] == 6


@pytest.mark.parametrize(("mnemonic", "a", "immediate", "result"), IMMEDIATE_CASES)
def test_immediate_instructions_compute_results(
    mnemonic: str, a: int, immediate: int, result: int
) -> None:
    operation = (mnemonic, {"rd": 3, "rs1": 1, "imm": immediate})
    m = run_both(Program(image=words(*load_address(1, a), operation, HALT)))
    assert registers(m)[3] == result
    assert m.cores.clock[0] == 4


@pytest.mark.parametrize(("mnemonic", "a", "shamt", "result"), SHIFT_CASES)
def test_shifts_by_immediates_compute_results(
    mnemonic: str, a: int, shamt: int, result: int
) -> None:
    operation = (mnemonic, {"rd": 3, "rs1": 1, "shamt": shamt})
    m = run_both(Program(image=words(*load_address(1, a), operation, HALT)))
    assert registers(m)[3] == result


def test_upper_immediates_compute_results() -> None:
    code = words(
        ("lui", {"rd": 3, "imm": 0xFFFF_F000}),
        ("auipc", {"rd": 4, "imm": 0}),
        ("auipc", {"rd": 5, "imm": 0xFFFF_F000}),
        ("auipc", {"rd": 6, "imm": 0x8000_0000}),
        HALT,
    )
    m = run_both(Program(image=code))
    assert registers(m)[3:7].tolist() == [0xFFFF_F000, 0x8000_0004, 0x7FFF_F008, 0x0000_000C]


def test_x0_stays_zero_and_a_destination_may_be_a_source() -> None:
    code = words(
        ("addi", {"rd": 0, "rs1": 0, "imm": 5}),
        ("lui", {"rd": 0, "imm": 0x1000}),
        ("jal", {"rd": 0, "offset": 4}),
        ("addi", {"rd": 1, "rs1": 0, "imm": 3}),
        ("add", {"rd": 1, "rs1": 1, "rs2": 1}),
        HALT,
    )
    m = run_both(Program(image=code))
    assert registers(m)[:2].tolist() == [0, 6]
