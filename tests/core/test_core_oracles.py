"""Test that every instruction has an oracle: results by hand, a formula or recorded vectors."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from core_jobs import JOBS
from toy_rows import add_descriptor, add_instruction, add_tensor_instruction

from nmpsim.isa import table
from nmpsim.isa.descriptors import DESCRIPTORS
from nmpsim.isa.fields import InstructionKind

Additions = dict[Callable[[pytest.MonkeyPatch], None], str]

BY_HAND = {
    "test_core_integer.py": """lui auipc addi slti sltiu xori ori andi slli srli srai add sub sll
        slt sltu xor srl sra or and mul mulh mulhsu mulhu div divu rem remu""",
    "test_core_control.py": """jal jalr beq bne blt bge bltu bgeu lb lh lw lbu lhu sb sh sw
        fence fence.i ecall ebreak mret wfi csrrw csrrs csrrc csrrwi csrrsi csrrci""",
    "test_core_cycles.py": "nmp.wait nmp.barrier nmp.post nmp.pend nmp.halt",
    "test_core_moves.py": "nmp.load nmp.store nmp.lut nmp.fill",
    "test_core_transposes.py": "nmp.transpose",
}
"""Test with results by hand or a plain loop -> mnemonics."""
BY_FORMULA = {
    "nmp.conv": ("test_core_formulas_sums.py", "else convolution"),
    "nmp.dwconv": ("test_core_formulas_sums.py", "do = depthwise "),
    "nmp.gemm": ("test_core_formulas_sums.py", "matrix_product("),
    "nmp.maxpool": ("test_core_formulas_pointwise.py", '"nmp.maxpool"'),
    "nmp.avgpool": ("test_core_formulas_pointwise.py", '"nmp.avgpool"'),
    "nmp.eltwise": ("test_core_formulas_pointwise.py", "pair("),
    "nmp.rescale": ("test_core_formulas_pointwise.py", "unary("),
}
"""Instruction that computes -> test with its formula, and the call that executes it there."""
RECORDED = {
    "nmp.conv": ("test_core_golden.py", "convolution("),
    "nmp.dwconv": ("test_core_golden_torch.py", "depthwise("),
    "nmp.gemm": ("test_core_golden.py", "matrix_product("),
    "nmp.avgpool": ("test_core_golden.py", '"nmp.avgpool"'),
    "nmp.eltwise": ("test_core_golden.py", "pair("),
    "nmp.rescale": ("test_core_golden.py", "unary("),
}
"""Instruction with a numerics profile -> test with recorded vectors, and the call there."""
HERE = Path(__file__).parent


def find_rows_without_oracle() -> set[str]:
    by_hand = {mnemonic for names in BY_HAND.values() for mnemonic in names.split()}
    return {row.mnemonic for row in table.INSTRUCTIONS} ^ (by_hand | set(BY_FORMULA))


def find_rows_without_vectors() -> set[str]:
    """Return the instructions with a numerics profile that no recorded vector executes."""
    profiled = {name for name, row in DESCRIPTORS.items() if "profile" in {w.name for w in row}}
    return {row.mnemonic for row in table.INSTRUCTIONS if row.descriptor in profiled} ^ set(
        RECORDED
    )


def find_rows_without_jobs() -> set[str]:
    """Return the tensor instructions, and the descriptors, without random jobs."""
    tensor = [row for row in table.INSTRUCTIONS if row.kind is InstructionKind.TENSOR]
    without = {row.mnemonic for row in tensor} ^ set(" ".join(JOBS).split())
    return without | set(DESCRIPTORS) ^ {row.descriptor for row in tensor}


def add_instruction_with_profile(patch: pytest.MonkeyPatch) -> None:
    add_tensor_instruction(patch, "rescale")


@pytest.mark.parametrize(
    ("find", "additions"),
    [
        (
            find_rows_without_oracle,
            {add_instruction: "nmp.toy", add_tensor_instruction: "nmp.toy"},
        ),
        (find_rows_without_vectors, {add_instruction_with_profile: "nmp.toy"}),
        (find_rows_without_jobs, {add_tensor_instruction: "nmp.toy", add_descriptor: "toy"}),
    ],
)
def test_tables_miss_a_toy_row_and_no_other(
    find: Callable[[], set[str]], additions: Additions
) -> None:
    assert find() == set()
    for add, name in additions.items():
        with pytest.MonkeyPatch.context() as patch:
            add(patch)
            assert find() == {name}


@pytest.mark.parametrize("path", BY_HAND)
def test_test_files_name_their_instructions(path: str) -> None:
    text = (HERE / path).read_text(encoding="utf-8").replace("\\n", " ")
    for mnemonic in BY_HAND[path].split():
        assert re.search(rf"(?<![\w.]){re.escape(mnemonic)}(?![\w.])", text), mnemonic


@pytest.mark.parametrize(("path", "call"), sorted({*BY_FORMULA.values(), *RECORDED.values()}))
def test_test_files_execute_their_instructions(path: str, call: str) -> None:
    assert call in (HERE / path).read_text(encoding="utf-8")
