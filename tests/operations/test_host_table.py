"""Test that every row of host operations has an independent oracle and limits in the LIR."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import CASES, ON_THE_DEVICE
from toy_rows import add_unlimited_opcode

from nmpsim.lir.opcodes import OPCODES

TESTS = Path(__file__).parents[1]
ORACLES = {
    "kernels/hostops/test_hostops_operations.py": """convolution batchedadd batchedreduceadd
        maxpool maxpoolwithargmax elementmul elementdiv elementcmplte elementcmplt elementcmpeq
        elementcmpneq elementselect splat transpose inserttensor extracttensor intlookuptable
        resizenearest leakyrelu touch rescalequantized sigmoid matmul""",
    "kernels/hostops/test_hostops_golden.py": """channelwisequantizedconvolution elementsub
        rowwisequantizedfullyconnected softmax quantize dequantize localresponsenormalization
        fullyconnected""",
    "kernels/hostops/test_hostops_functions.py": "tanh",
    "operations/test_edges.py": "nonmaxsuppression",
}
"""Test with plain loops, formulas or recorded values -> operations without a case in ``cases``."""
WITHOUT_RULES = {"splat", "touch"}
"""Operations on one tensor of any type and shape."""


def on_the_host() -> set[str]:
    return {name for name, row in OPCODES.items() if row.signatures}


def without_oracle() -> set[str]:
    named = {opcode for opcodes in ORACLES.values() for opcode in opcodes.split()}
    return on_the_host() - {name.split()[0] for name in (*CASES, *ON_THE_DEVICE)} - named


def without_limits() -> set[str]:
    limited = {name for name, row in OPCODES.items() if row.rules}
    return on_the_host() - limited - WITHOUT_RULES


def test_every_operation_has_an_oracle(monkeypatch: pytest.MonkeyPatch) -> None:
    assert without_oracle() == set()
    add_unlimited_opcode(monkeypatch)
    assert without_oracle() == {"toy"}


def test_every_operation_has_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    assert without_limits() == set()
    add_unlimited_opcode(monkeypatch)
    assert without_limits() == {"toy"}


@pytest.mark.parametrize("path", ORACLES)
def test_an_oracle_names_its_operations(path: str) -> None:
    text = (TESTS / path).read_text()
    assert {
        opcode
        for opcode in ORACLES[path].split()
        if opcode not in text and f'"{opcode.removeprefix("element")}"' not in text
    } == set()
