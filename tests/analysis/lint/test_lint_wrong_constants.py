"""Constants of a TFLite file that were changed, against the float ONNX model."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lint_programs import findings
from shared_files import shared_folder

from nmpsim.analysis.lint.load import read_float_arrays
from nmpsim.analysis.shadow import match_float_weights
from nmpsim.frontends import ImportOptions, import_model
from nmpsim.lir.nodes import Module

Array = np.ndarray[Any, Any]

pytestmark = pytest.mark.usefixtures("shared")


@cache
def get_models() -> tuple[Path, Path, Module]:
    """Return a quantized TFLite file, the float ONNX model, and the module of the file."""
    models = shared_folder() / "models"
    quantized = models / "resnet8_int8" / "model.tflite"
    return quantized, models / "resnet8_float_ortq" / "model_float.onnx", read_module(quantized)


def read_module(path: Path) -> Module:
    imported = import_model(path, None, None, ImportOptions())
    assert imported is not None
    return imported.module


def get_constant_names(module: Module, operand: int) -> list[str]:
    """Return the names of an operand of all convolutions with a kernel of 3 x 3."""
    return [
        one.operands[operand].name
        for one in module.instructions
        if one.opcode == "channelwisequantizedconvolution" and one.attributes["Kernels"] == (3, 3)
    ]


FAULTS: dict[str, tuple[int, Callable[[Array], Array], str, str]] = {
    "bias of zero": (3, np.zeros_like, "bias-differs", "zero"),
    "other bias": (3, lambda bias: bias[::-1] // 3 + 9, "bias-differs", "unknown"),
    "kernel with swapped axes": (
        2, lambda kernel: kernel.transpose(0, 2, 1, 3), "weights-differ",
        "the kernel's two axes swapped",
    ),
    "kernel with reversed inputs": (
        2, lambda kernel: kernel[..., ::-1], "weights-differ",
        "the kernel's input channels in reverse order",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_changed_constant_of_a_file_is_an_error(name: str, tmp_path: Path) -> None:
    operand, change, rule, form = FAULTS[name]
    quantized, floats, module = get_models()
    constant = get_constant_names(module, operand)[3]
    values = module.constants[constant]
    data, changed = quantized.read_bytes(), np.ascontiguousarray(change(values))
    assert data.count(values.tobytes()) == 1
    path = tmp_path / "changed.tflite"
    path.write_bytes(data.replace(values.tobytes(), changed.astype(values.dtype).tobytes()))
    wrong = read_module(path)
    arrays = read_float_arrays(wrong, floats)
    found = [
        finding
        for one in ("bias-differs", "bias-payload", "weights-differ")
        for finding in findings(wrong, one, float_weights=arrays, numerics="q31")
    ]
    assert [(one.rule, one.severity, one.tensor) for one in found] == [(rule, "error", constant)]
    assert found[0].facts["form"] == form
    matches = match_float_weights(wrong, floats)
    faults = {one.constant: one.fault for one in matches.found if one.fault}
    assert faults == ({} if form == "unknown" else {constant: form})
    assert matches.unmatched == ((constant,) if form == "unknown" else ())


def test_an_unchanged_file_has_no_finding() -> None:
    _, floats, module = get_models()
    arrays = read_float_arrays(module, floats)
    for rule in ("bias-differs", "bias-payload", "weights-differ"):
        assert findings(module, rule, float_weights=arrays, numerics="q31") == []
    matches = match_float_weights(module, floats)
    assert not matches.unmatched
    assert not any(one.fault for one in matches.found)


def test_a_bias_on_the_scale_of_the_sums_is_matched() -> None:
    models = shared_folder() / "models" / "resnet8_float_ortq"
    module = read_module(models / "model_qdq_s8s8_perchannel.onnx")
    matches = match_float_weights(module, models / "model_float.onnx")
    assert not matches.unmatched
    assert not any(one.fault for one in matches.found)
