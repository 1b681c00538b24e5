"""Encodings worked out from the RISC-V manual and checked against GNU as 2.40."""

import pytest
from toy_rows import add_instruction

from nmpsim.isa import table
from nmpsim.isa.assembly import disassemble_word, parse_instruction
from nmpsim.isa.expressions import tokenize

PC = 0x8000_0000

SCALAR = [
    ("lui t0, 0x80000", 0x800002B7),
    ("lui a0, 0xfffff", 0xFFFFF537),
    ("auipc a0, 0x12345", 0x12345517),
    ("jal zero, 0x7ffffffc", 0xFFDFF06F),
    ("jal ra, 0x80000800", 0x001000EF),
    ("jal t1, 0x7ff00000", 0x8000036F),
    ("jal t1, 0x800ffffe", 0x7FFFF36F),
    ("jalr zero, 0(ra)", 0x00008067),
    ("jalr ra, -2048(t6)", 0x800F80E7),
    ("beq ra, sp, 0x80000010", 0x00208863),
    ("bne a0, zero, 0x7ffffff8", 0xFE051CE3),
    ("blt s0, s1, 0x80000ffe", 0x7E944FE3),
    ("bge s2, s3, 0x7ffff000", 0x81395063),
    ("bltu a1, a2, 0x80000800", 0x00C5E0E3),
    ("bgeu t3, t4, 0x7ffffffe", 0xFFDE7FE3),
    ("lb a0, -1(sp)", 0xFFF10503),
    ("lh a1, 2047(gp)", 0x7FF19583),
    ("lw a2, 0(tp)", 0x00022603),
    ("lbu a3, -2048(t0)", 0x8002C683),
    ("lhu a4, 16(a5)", 0x0107D703),
    ("sb a0, -1(sp)", 0xFEA10FA3),
    ("sh a1, 2047(gp)", 0x7EB19FA3),
    ("sw a2, -2048(tp)", 0x80C22023),
    ("addi ra, sp, -1", 0xFFF10093),
    ("slti s10, s11, -2048", 0x800DAD13),
    ("sltiu a6, a7, 2047", 0x7FF8B813),
    ("xori t0, t1, -1", 0xFFF34293),
    ("ori t2, s0, 255", 0x0FF46393),
    ("andi s1, a0, 1", 0x00157493),
    ("slli a0, a1, 31", 0x01F59513),
    ("srli a2, a3, 0", 0x0006D613),
    ("srai a4, a5, 17", 0x4117D713),
    ("add ra, sp, gp", 0x003100B3),
    ("sub t6, t5, t4", 0x41DF0FB3),
    ("sll a0, a1, a2", 0x00C59533),
    ("slt a0, a1, a2", 0x00C5A533),
    ("sltu a0, a1, a2", 0x00C5B533),
    ("xor a0, a1, a2", 0x00C5C533),
    ("srl a0, a1, a2", 0x00C5D533),
    ("sra a0, a1, a2", 0x40C5D533),
    ("or a0, a1, a2", 0x00C5E533),
    ("and a0, a1, a2", 0x00C5F533),
    ("mul a0, a1, a2", 0x02C58533),
    ("mulh a0, a1, a2", 0x02C59533),
    ("mulhsu a0, a1, a2", 0x02C5A533),
    ("mulhu a0, a1, a2", 0x02C5B533),
    ("div a0, a1, a2", 0x02C5C533),
    ("divu a0, a1, a2", 0x02C5D533),
    ("rem s4, s5, s6", 0x036AEA33),
    ("remu s7, s8, s9", 0x039C7BB3),
    ("fence.i", 0x0000100F),
    ("ecall", 0x00000073),
    ("ebreak", 0x00100073),
    ("mret", 0x30200073),
    ("wfi", 0x10500073),
    ("csrrw t0, mscratch, t1", 0x340312F3),
    ("csrrs t0, mhartid, zero", 0xF14022F3),
    ("csrrc zero, mstatus, a0", 0x30053073),
    ("csrrwi a0, mtvec, 31", 0x305FD573),
    ("csrrsi zero, mcycle, 0", 0xB0006073),
    ("csrrci a0, minstret, 5", 0xB022F573),
    ("fence", 0x0000000F),
]
# funct7 = unit, or 4 for the synchronization; funct3 = index; opcode 0001011.
TENSOR = [
    ("nmp.load t0", 0x0002800B),
    ("nmp.store t0", 0x0202800B),
    ("nmp.conv a0", 0x0405000B),
    ("nmp.dwconv t6", 0x040F900B),
    ("nmp.gemm t0", 0x0402A00B),
    ("nmp.maxpool t0", 0x0602800B),
    ("nmp.avgpool t0", 0x0602900B),
    ("nmp.eltwise t0", 0x0602A00B),
    ("nmp.rescale t0", 0x0602B00B),
    ("nmp.lut t0", 0x0602C00B),
    ("nmp.fill t0", 0x0602D00B),
    ("nmp.transpose t0", 0x0602E00B),
    ("nmp.wait load, 0", 0x0800000B),
    ("nmp.wait store, 1", 0x0810800B),
    ("nmp.wait mac, 31", 0x09F1000B),
    ("nmp.wait vector, 2", 0x0821800B),
    ("nmp.barrier a0, a1", 0x08B5100B),
    ("nmp.post a0, a1", 0x08B5200B),
    ("nmp.pend a0, a1", 0x08B5300B),
    ("nmp.halt", 0x0800400B),
]


def _no_symbols(token):
    raise AssertionError(token)


def _assemble(text: str) -> list[int]:
    name, *operands = tokenize(text)
    pending = parse_instruction(name, operands, len(text) + 1, _no_symbols)
    return [p.encode_word(PC + 4 * i, _no_symbols) for i, p in enumerate(pending)]


@pytest.mark.parametrize(("text", "word"), SCALAR + TENSOR)
def test_an_instruction_has_its_word(text: str, word: int):
    assert [f"{w:#010x}" for w in _assemble(text)] == [f"{word:#010x}"]
    assert disassemble_word(word, PC) == text


def _find_unlisted_mnemonics() -> set[str]:
    listed = {text.split()[0] for text, _ in SCALAR + TENSOR}
    return listed ^ {i.mnemonic for i in table.INSTRUCTIONS}


def test_every_instruction_is_in_the_lists(monkeypatch: pytest.MonkeyPatch):
    assert _find_unlisted_mnemonics() == set()
    add_instruction(monkeypatch)
    assert _find_unlisted_mnemonics() == {"nmp.toy"}


@pytest.mark.parametrize(
    ("text", "same_as"),
    [
        ("nop", ["addi x0, x0, 0"]),
        ("mv a0, a1", ["addi x10, x11, 0"]),
        ("li a0, -2048", ["addi a0, zero, -2048"]),
        ("li a0, 2048", ["lui a0, 1", "addi a0, a0, -2048"]),
        ("li a0, 0xffffffff", ["lui a0, 0", "addi a0, a0, -1"]),
        ("la fp, 0x80000800", ["lui s0, 0x80001", "addi s0, s0, -2048"]),
        ("j 0x80000100", ["jal zero, 0x80000100"]),
        ("call 0x7fffff00", ["jal ra, 0x7fffff00"]),
        ("jr t0", ["jalr zero, 0(t0)"]),
        ("ret", ["jalr zero, (ra)"]),
        ("beqz a0, 0x80000010", ["beq a0, zero, 0x80000010"]),
        ("bnez a0, 0x80000010", ["bne a0, zero, 0x80000010"]),
        ("csrr a0, mcycle", ["csrrs a0, 0xb00, zero"]),
        ("csrw mtvec, a0", ["csrrw zero, 0x305, a0"]),
    ],
)
def test_a_pseudo_instruction_expands_to_instructions(text: str, same_as: list[str]):
    assert _assemble(text) == [_assemble(one)[0] for one in same_as]


@pytest.mark.parametrize("word", [0, 0xFFFFFFFF, 0x0800500B, 0x0A00000B, 0x0002808B, 0x02051513])
def test_an_invalid_instruction_is_shown_as_a_word(word: int):
    assert disassemble_word(word) == f".word {word:#010x}"


def test_ignored_bits_are_kept():
    assert disassemble_word(0x0FF0000F) == ".word 0x0ff0000f  # fence"
