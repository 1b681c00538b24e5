"""Glow's recorded vectors as LIR programs, compiled and run: libjit's under glow-int, the
Interpreter's under glow-float, Int8 and Int16.

Exceptions are entries of docs/numerics.md, named where they are made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numerics.vectors import glow_cases
from tiers import get_share
from written_programs import Array, Kind, Program, make_kind, run

Case = dict[str, Any]
Build = Callable[[Program, Case], str]
"""Writes the instruction of a case; the name of its result."""


def window(case: Case) -> dict[str, Any]:
    return {
        "Kernels": case["kernels"],
        "Strides": case["strides"],
        "Pads": case["pads_tlbr"],
        **({"Group": case["group"], "Dilation": case["dilation"]} if "group" in case else {}),
    }


def result_kind(case: Case, key: str) -> Kind:
    return make_kind(case[key], case["out_scale"], case["out_offset"])


def convolution(activation: str) -> Build:
    def build(p: Program, case: Case) -> str:
        x = p.input(case["input"], case["in_scale"], case["in_offset"])
        w = p.constant(case["filter"], case["filter_scale"], case["filter_offset"])
        b = p.constant(case["bias"], case["bias_scale"], case["bias_offset"])
        y = p.output(result_kind(case, "expected_interp"))
        fused = {"FusedActivation": activation, "FusedActivationArgs": []}
        return p.emit("convolution", y, x, w, b, **window(case), Layout="NHWC", **fused)

    return build


def channelwise(p: Program, case: Case) -> str:
    x = p.input(case["input"], case["in_scale"], case["in_offset"])
    w, b = p.constant(case["filter"], 1, 0), p.constant(case["bias"], 1, 0)
    tables = [
        table
        for what in ("filter", "bias")
        for table in (
            p.constant(case[f"{what}_scales"]),
            p.constant(case[f"{what}_offsets"], elem="index32"),
        )
    ]
    y = p.output(result_kind(case, "expected_interp"))
    none = {"FusedActivation": "NONE", "FusedActivationArgs": []}
    return p.emit("channelwisequantizedconvolution", y, x, w, b, *tables, **window(case), **none)


def fully_connected(p: Program, case: Case) -> str:
    x = p.input(case["input"], case["in_scale"], case["in_offset"])
    w = p.constant(case["weights"], case["weights_scale"], case["weights_offset"])
    b = p.constant(case["bias"], case["bias_scale"], case["bias_offset"])
    return p.emit("fullyconnected", p.output(result_kind(case, "expected_interp")), x, w, b)


def matmul(p: Program, case: Case) -> str:
    x = p.input(case["input"], case["in_scale"], case["in_offset"])
    w = p.constant(case["weights"], case["weights_scale"], case["weights_offset"])
    return p.emit("matmul", p.output(result_kind(case, "expected_matmul_interp")), x, w)


def rowwise(p: Program, case: Case) -> str:
    x = p.input(case["input"], case["in_scale"], case["in_offset"])
    w = p.constant(case["weights"], 1, 0)
    b = p.constant(case["bias"], case["bias_scale"], case["bias_offset"])
    tables = p.constant(case["weights_scales"]), p.constant(case["weights_offsets"], elem="index32")
    y = p.output(result_kind(case, "expected_libjit"))
    return p.emit("rowwisequantizedfullyconnected", y, x, w, b, *tables)


def elementwise(p: Program, case: Case) -> str:
    sides = [p.input(case[s], case[f"{s}_scale"], case[f"{s}_offset"]) for s in ("lhs", "rhs")]
    y = p.output(result_kind(case, "expected_interp"))
    return p.emit(f"element{case['op']}", y, *sides)


def max_pool(p: Program, case: Case) -> str:
    types = (case["in_scale"], case["in_offset"])
    y = p.output(make_kind(case["expected_maxpool"], *types))
    return p.emit("maxpool", y, p.input(case["input"], *types), **window(case), Layout=0)


def average_pool(count_padding: int) -> Build:
    def build(p: Program, case: Case) -> str:
        x = p.input(case["input"], case["in_scale"], case["in_offset"])
        recorded = case[f"expected_avgpool_cip{count_padding}_libjit"]
        y = p.output(make_kind(recorded, case["avg_out_scale"], case["avg_out_offset"]))
        return p.emit(
            "avgpool", y, x, **window(case), Layout=0, CountIncludePads=count_padding
        )  # fmt: skip

    return build


def unary(opcode: str, **attributes: str) -> Build:
    """Return a builder of ReLU or Clip of a pool's input; ``attributes`` name the case's arrays."""

    def build(p: Program, case: Case) -> str:
        x = p.input(case["input"], case["in_scale"], case["in_offset"])
        y = p.output(make_kind(case["input"], case["avg_out_scale"], case["avg_out_offset"]))
        values = {name: float(case[key]) for name, key in attributes.items()}
        return p.emit(opcode, y, x, **values)

    return build


def max_splat(p: Program, case: Case) -> str:
    types = (case["in_scale"], case["in_offset"])
    y = p.output(make_kind(case["input"], *types))
    return p.emit("cpumaxsplat", y, p.input(case["input"], *types), SplatValue=0.0)


def lowered_relu(p: Program, case: Case) -> str:
    """Build a ReLU as interpreter-lowered does: the maximum with a splat of the result's type."""
    x = p.input(case["input"], case["in_scale"], case["in_offset"])
    kind = make_kind(case["input"], case["avg_out_scale"], case["avg_out_offset"])
    zeros = p.emit("splat", p.buffer(kind), Value=0.0)
    return p.emit("elementmax", p.output(kind), x, zeros)


def rescale(p: Program, case: Case) -> str:
    x = p.input(case["src"], case["src_scale"], case["src_offset"])
    y = p.output(make_kind(case["src"], case["dst_scale"], case["dst_offset"]))
    return p.emit("rescalequantized", y, x)


VECTORS: list[tuple[str, str, str, Build, int]] = [
    ("conv_i8", "glow-int", "expected_libjit", convolution("NONE"), 90),
    ("conv_i8", "glow-int", "expected_libjit_relu", convolution("RELU"), 13),
    ("conv_i8", "glow-float", "expected_interp", convolution("NONE"), 90),
    ("conv_channelwise_i8", "glow-int", "expected_libjit", channelwise, 24),
    ("conv_channelwise_i8", "glow-float", "expected_interp", channelwise, 24),
    ("conv_i16_interp", "glow-float", "expected_interp", convolution("NONE"), 40),
    ("fc_i8", "glow-int", "expected_libjit", fully_connected, 40),
    ("fc_i8", "glow-float", "expected_interp", fully_connected, 40),
    ("fc_i8", "glow-int", "expected_matmul_libjit", matmul, 40),
    ("fc_i8", "glow-float", "expected_matmul_interp", matmul, 40),
    ("fc_i16_interp", "glow-float", "expected_interp", fully_connected, 24),
    ("fc_i16_interp", "glow-float", "expected_matmul_interp", matmul, 24),
    ("fc_rowwise_i8", "glow-int", "expected_libjit", rowwise, 10),
    ("elementwise_i8", "glow-int", "expected_libjit", elementwise, 100),
    ("elementwise_i8", "glow-float", "expected_interp", elementwise, 100),
    ("pool_relu_i8", "glow-int", "expected_maxpool", max_pool, 36),
    ("pool_relu_i8", "glow-float", "expected_maxpool", max_pool, 36),
    ("pool_i16_interp", "glow-float", "expected_maxpool", max_pool, 9),
    ("pool_relu_i8", "glow-int", "expected_avgpool_cip0_libjit", average_pool(0), 36),
    ("pool_relu_i8", "glow-int", "expected_avgpool_cip1_libjit", average_pool(1), 36),
    ("pool_relu_i8", "glow-float", "expected_avgpool_cip0_interp", average_pool(0), 36),
    ("pool_relu_i8", "glow-float", "expected_avgpool_cip1_interp", average_pool(1), 36),
    ("pool_relu_i8", "glow-int", "expected_relu_libjit", unary("relu"), 36),
    ("pool_relu_i8", "glow-float", "expected_relu_interp", lowered_relu, 36),
    ("pool_relu_i8", "glow-int", "expected_clip_libjit",
     unary("clip", Min="clip_min_f", Max="clip_max_f"), 36),
    ("pool_relu_i8", "glow-int", "expected_maxsplat0", max_splat, 36),
    ("rescale_quantize_dequantize", "glow-int", "rescale_libjit", rescale, 40),
    ("rescale_quantize_dequantize", "nmp", "rescale_libjit", rescale, 40),
]  # fmt: skip


def run_case(
    case: Case, build: Build, numerics: str, folder: Path, engine: str
) -> tuple[Array, str]:
    """Run a case and return the result and where it was computed."""
    program = Program()
    result = build(program, case)
    report = run(program, folder, engine, numerics=numerics)
    return report.outputs[result], report.layers[-1].placement


@pytest.mark.parametrize(
    ("file", "numerics", "key", "build", "count"),
    VECTORS,
    ids=[f"{file}-{key}-{numerics}" for file, numerics, key, _, _ in VECTORS],
)
@pytest.mark.parametrize("engine", ["compiled", "reference"])
def test_operations_equal_recorded_vectors(
    shared: Path,
    tmp_path: Path,
    engine: str,
    file: str,
    numerics: str,
    key: str,
    build: Build,
    count: int,
) -> None:
    cases = [case for case in glow_cases(shared, f"{file}.npz") if key in case]
    assert len(cases) == count
    for case in sample(cases, engine):
        y, placement = run_case(case, build, numerics, tmp_path, engine)
        np.testing.assert_array_equal(y, case[key])
        assert placement == "device"


def sample(cases: list[Case], engine: str) -> Iterator[Case]:
    """Return one of 12 cases for the slow engine, else one of 3, or all in the nightly tests.

    Each case of these files is also given to the units themselves, by ``test_core_golden.py``.
    """
    return iter(cases[3::12] if engine == "reference" else cases[:: get_share(3)])


def convert_type(
    case: Case, opcode: str, source: Array, to: str, numerics: str, folder: Path
) -> Array:
    """Return the result of one change of type; ``to`` is its element type."""
    program = Program()
    quantized = opcode != "quantize"
    types = (case["src_scale"], case["src_offset"]) if quantized else ()
    x, dtype = program.input(source, *types), {"float": "f4", "i8": "i1", "i16": "i2", "i32": "i4"}
    like = np.zeros(source.shape, dtype[to])
    target = (case["dst_scale"], case["dst_offset"]) if to != "float" else ()
    y = program.emit(opcode, program.output(make_kind(like, *target)), x)
    return run(program, folder, numerics=numerics).outputs[y]


@pytest.mark.parametrize("elem", ["i8", "i16"])
def test_conversions_equal_recorded_vectors(shared: Path, tmp_path: Path, elem: str) -> None:
    every = glow_cases(shared, "rescale_quantize_dequantize.npz")
    cases = [case for case in every if case["elem"] == elem]
    assert len(cases) == 20
    for case in cases:
        x, real = case["src"], case["float_in"]
        y = convert_type(case, "dequantize", x, "float", "glow-int", tmp_path)
        np.testing.assert_array_equal(y, case["dequantize"])
        for numerics, oracle in (("glow-int", "libjit"), ("glow-float", "interp")):
            # quantize-beyond-int32: libjit's cast is undefined there.
            defined = np.abs(np.float64(real) / np.float64(case["dst_scale"])) < 2**31
            y = convert_type(case, "quantize", real, elem, numerics, tmp_path)
            np.testing.assert_array_equal(y[defined], case[f"quantize_{oracle}"][defined])
            np.testing.assert_array_equal(y, case["quantize_interp"])
        y = convert_type(case, "rescalequantized", x, elem, "glow-float", tmp_path)
        # interpreter-int16-rescale: it clips Int16 to the range of Int8.
        np.testing.assert_array_equal(np.clip(y, -128, 127), case["rescale_interp"])
        to_bias = {**case, "dst_scale": case["bias_i32_scale"], "dst_offset": 0}
        y = convert_type(to_bias, "quantize", case["bias_float"], "i32", "glow-int", tmp_path)
        np.testing.assert_array_equal(y, case["bias_i32"])


def test_softmax_and_lrn_equal_recorded_vectors(shared: Path, tmp_path: Path) -> None:
    cases = list(glow_cases(shared, "softmax_lrn_f32.npz"))
    assert len(cases) == 12
    for case in cases:
        program = Program()
        softmax = program.emit(
            "softmax",
            program.output(make_kind(case["softmax_in"])),
            program.input(case["softmax_in"]),
        )
        lrn, scale = (program.output(make_kind(case["lrn_in"])) for _ in range(2))
        program.emit(
            "localresponsenormalization",
            lrn,
            program.input(case["lrn_in"]),
            also=(scale,),
            HalfWindowSize=case["lrn_half_window"],
            **{name.title(): float(case[f"lrn_{name}"]) for name in ("alpha", "beta", "k")},
        )
        outputs = run(program, tmp_path).outputs
        np.testing.assert_array_equal(outputs[softmax], case["softmax_libjit"])
        np.testing.assert_array_equal(outputs[scale], case["lrn_scale_cache_libjit"])
        units = outputs[lrn].view(np.int32) - case["lrn_libjit"].view(np.int32)
        assert np.abs(units).max() <= 1  # lrn-power
        assert np.count_nonzero(units) <= 1
