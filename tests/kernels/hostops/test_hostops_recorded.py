"""Compare each instruction of the recorded Glow programs with its recorded result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import numpy as np
import pytest

from nmpsim.kernels.hostops import HostTensor
from nmpsim.lir.host_execution import execute_operation

Programs = Callable[[str], Iterator[Any]]

SAME_IN_BOTH = {"quantize", "dequantize", "maxpool", "splat", "transpose", "inserttensor"}
"""Int8 operations on which libjit and the Interpreter agree."""
BIAS_PLACE = {"convolution": 3, "channelwisequantizedconvolution": 3, "fullyconnected": 3}


def mismatches(programs: Programs, pattern: str) -> tuple[Counter[str], list[str]]:
    """Return how many results of each operation are right, and a place of each wrong result."""
    right: Counter[str] = Counter()
    wrong: list[str] = []
    for program in programs(pattern):
        for step in program.steps():
            if not step.comparable or not follows_this_reference(step):
                continue
            outputs = execute_operation(step.opcode, step.operands, step.attributes).outputs
            if step.matches(outputs):
                right[f"{step.opcode} {step.operands[-1].dtype}"] += 1
            else:
                wrong.append(step.where)
    return right, wrong


def follows_this_reference(step: Any) -> bool:
    """Return whether a program follows libjit's Int8 arithmetic, not the Interpreter's."""
    is_int8 = any(operand.dtype == np.int8 for operand in step.operands)
    return step.flavour != "interp" or not is_int8 or step.opcode in SAME_IN_BOTH


def test_int8_programs_of_the_cpu_backend(programs: Programs) -> None:
    right, wrong = mismatches(programs, r"/cpu(max|old)?\.lir\.txt$")
    assert not wrong
    assert right["softmax int8"] >= 14
    assert right["convolution int32"] >= 100
    assert right["channelwisequantizedconvolution int32"] >= 30
    assert right["rowwisequantizedfullyconnected int32"] >= 6
    assert right["leakyrelu int8"] >= 3
    assert sum(right.values()) >= 700


def test_int16_programs_of_an_accelerator_backend(programs: Programs) -> None:
    right, wrong = mismatches(programs, r"/nmp(old)?\.lir\.txt$")
    assert not wrong
    assert {"elementadd int16", "avgpool int16", "batchedadd int16", "matmul int16"} <= set(right)
    assert sum(right.values()) >= 150


def test_programs_of_the_interpreter_backend(programs: Programs) -> None:
    right, wrong = mismatches(programs, r"/interp\.lir\.txt$")
    assert not wrong
    for name in ("softmax", "maxpool", "avgpool", "elementmax", "elementmin", "elementselect"):
        assert right[f"{name} float32"] > 0, name
    assert right["elementcmplte int16"] > 0
    assert sum(right.values()) >= 400


def test_int16_formulas_on_the_interpreters_int8_programs(programs: Programs) -> None:
    """The Int16 path is the Interpreter's formula, so with an Int8 clip it gives its Int8."""
    right: Counter[str] = Counter()
    for program in programs(r"/interp\.lir\.txt$"):
        for step in program.steps():
            if step.comparable and has_int16_form(step):
                widened = [widen(step, place, o) for place, o in enumerate(step.operands)]
                outputs = execute_operation(step.opcode, widened, step.attributes).outputs
                assert step.matches({p: narrow(v) for p, v in outputs.items()}), step.where
                right[step.opcode] += 1
    assert {"elementadd", "elementmul", "elementselect", "elementcmplte"} <= set(right)
    assert sum(right.values()) >= 400


def has_int16_form(step: Any) -> bool:
    if step.opcode in ("quantize", "dequantize", "rowwisequantizedfullyconnected"):
        return False
    return any(operand.dtype == np.int8 for operand in step.operands[:2])


def widen(step: Any, place: int, operand: HostTensor) -> HostTensor:
    if operand.dtype != np.int8 or place == BIAS_PLACE.get(step.opcode):
        return operand
    return attrs.evolve(operand, values=operand.values.astype(np.int16))


def narrow(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if values.dtype != np.int16:
        return values
    return np.clip(values, -128, 127).astype(np.int8)


def test_operands_are_never_written(programs: Programs) -> None:
    for program in programs(r"lir/minimob/.*/(cpu|interp)\.lir\.txt$"):
        for step in program.steps():
            before = [operand.values.tobytes() for operand in step.operands]
            result = execute_operation(step.opcode, step.operands, step.attributes)
            assert [operand.values.tobytes() for operand in step.operands] == before
            for place, values in result.outputs.items():
                assert values.shape == step.operands[place].shape
                assert values.dtype == step.operands[place].dtype
                for operand in step.operands:
                    assert not np.shares_memory(values, operand.values)


@pytest.mark.parametrize("opcode", ["quantize", "convolution", "elementadd", "avgpool"])
def test_unclipped_values_clip_to_the_output(programs: Programs, opcode: str) -> None:
    for program in programs(r"lir/minires/i8_pow2_b8/cpu\.lir\.txt$"):
        for step in program.steps():
            if step.opcode == opcode:
                result = execute_operation(opcode, step.operands, step.attributes)
                assert result.unclipped[0].dtype == np.int64
                clipped = np.clip(result.unclipped[0], -128, 127)
                np.testing.assert_array_equal(clipped, result.outputs[0])
