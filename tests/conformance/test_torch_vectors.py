"""PyTorch's recorded layers and its small network as LIR programs, engine by engine.

PyTorch's activations are unsigned; as Int8 they and their zero points are less by 128. Its
channels are second, ours last.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numerics.vectors import Case, pair, torch_files
from written_programs import Array, Kind, Program, make_kind, run

ENGINES = ("fbgemm", "x86", "qnnpack", "onednn")
UNSIGNED = 128


def int8(values: Array) -> Array:
    return (values.astype(np.int16) - UNSIGNED).astype(np.int8)


def move_channels_last(values: Array) -> Array:
    """Return values with the channels last."""
    return np.ascontiguousarray(np.moveaxis(values, 1, -1))


def choose_numerics(engine: str, kind: str) -> str:
    """Return the profile of an engine; x86 is onednn for convolutions and fbgemm for the rest."""
    x86 = {"conv": "onednn"}.get(kind, "fbgemm")
    return f"float-{x86 if engine == 'x86' else engine}"


class TorchProgram(Program):
    """Program of layers of PyTorch."""

    def tensor(self, values: Array, scale: Any, zero: Any) -> str:
        """Add an input of unsigned values."""
        return self.input(int8(values), scale, int(zero) - UNSIGNED)

    def convolution(self, y: str, x: str, layer: Case) -> str:
        """Add a convolution with the weights, bias, sizes and activation of ``layer``.

        The shape of w is [out, in, kh, kw], that of w_scale [1] or [out].
        An integer bias is on the scale of the sum.
        """
        (top, left), relu = layer["pad"], "RELU" if layer["relu"] else "NONE"
        w, count = move_channels_last(layer["w"]), len(layer["w"])
        sizes = {
            "Kernels": w.shape[1:3],
            "Strides": layer["stride"],
            "Pads": (top, left, top, left),
            "Group": layer["groups"],
            "Dilation": layer["dil"],
            "FusedActivation": relu,
            "FusedActivationArgs": [],
        }
        values = layer["bias"] if layer["bias"].size else np.zeros(count, np.float32)
        is_real = values.dtype == np.float32
        bias = self.constant(values) if is_real else self.constant(values, 1)
        if layer["w_scale"].size == 1:
            weights = self.constant(w, layer["w_scale"][0])
            return self.emit("convolution", y, x, weights, bias, Layout="NHWC", **sizes)
        bias_scales = np.ones(count) if is_real else layer["x_scale"] * layer["w_scale"]
        tables = [*self._channel_scales(layer["w_scale"]), *self._channel_scales(bias_scales)]
        opcode = "channelwisequantizedconvolution"
        return self.emit(opcode, y, x, self.constant(w, 1), bias, *tables, **sizes)

    def linear(self, y: str, x: str, layer: Case) -> str:
        """Add a fully connected layer with w [out, in] and, if it has one, its ReLU in place."""
        bias = self.constant(layer["bias"])
        if layer["w_scale"].size == 1:
            weights = self.constant(np.ascontiguousarray(layer["w"].T), layer["w_scale"][0])
            self.emit("fullyconnected", y, x, weights, bias)
        else:
            weights, tables = self.constant(layer["w"], 1), self._channel_scales(layer["w_scale"])
            self.emit("rowwisequantizedfullyconnected", y, x, weights, bias, *tables)
        return self.emit("relu", y, y) if layer["relu"] else y

    def _channel_scales(self, scales: Array) -> tuple[str, str]:
        zeros = np.zeros(len(scales), np.int32)
        return self.constant(scales.astype(np.float32)), self.constant(zeros, elem="index32")


def kind(values: Array, scale: Any, zero: Any) -> Kind:
    return make_kind(int8(values), scale, int(zero) - UNSIGNED)


def run_program(program: Program, y: str, folder: Path, numerics: str, engine: str) -> Array:
    report = run(program, folder, engine, numerics=numerics)
    assert {layer.placement for layer in report.layers} == {"device"}
    return report.outputs[y]


def select_cases(cases: list[Case], engine: str) -> list[Case]:
    return cases if engine == "compiled" else cases[::4]


@pytest.mark.parametrize("engine", ["compiled", "reference"])
@pytest.mark.parametrize("torch_engine", ENGINES)
def test_convolution_and_linear_equal_pytorch(
    shared: Path, tmp_path: Path, torch_engine: str, engine: str
) -> None:
    cases = list(torch_files(shared, torch_engine, {"conv", "linear"}))
    assert len(cases) == 18
    for case in select_cases(cases, engine):
        meta, program = case["meta"], TorchProgram()
        layer = {k: pair(meta.get(k, 1)) for k in ("stride", "pad", "dil")}
        layer |= {"groups": meta.get("groups", 1), "relu": meta["relu"]}
        layer |= {k: case[k] for k in ("w", "w_scale", "bias")}
        x, expected = move_channels_last(case["x"]), move_channels_last(case["y"])
        given = program.tensor(x, case["x_scale"], case["x_zp"])
        y = program.output(kind(expected, case["y_scale"], case["y_zp"]))
        (program.convolution if meta["kind"] == "conv" else program.linear)(y, given, layer)
        numerics = choose_numerics(torch_engine, meta["kind"])
        found = run_program(program, y, tmp_path, numerics, engine)
        np.testing.assert_array_equal(found, int8(expected), err_msg=case["name"])


@pytest.mark.parametrize("engine", ["compiled", "reference"])
@pytest.mark.parametrize("torch_engine", ENGINES)
def test_add_and_mul_equal_pytorch(
    shared: Path, tmp_path: Path, torch_engine: str, engine: str
) -> None:
    cases = list(torch_files(shared, torch_engine, {"add", "add_relu", "mul"}))
    assert len(cases) == 4
    for case in cases:
        operation, program = case["meta"]["kind"], TorchProgram()
        sides = [program.tensor(case[n], case[f"{n}_scale"], case[f"{n}_zp"]) for n in "ab"]
        y = program.output(kind(case["y"], case["y_scale"], case["y_zp"]))
        program.emit(f"element{operation[:3]}", y, *sides)
        if operation == "add_relu":
            program.emit("relu", y, y)
        numerics = choose_numerics(torch_engine, operation)
        found = run_program(program, y, tmp_path, numerics, engine)
        np.testing.assert_array_equal(found, int8(case["y"]), err_msg=case["name"])


class Digits(TorchProgram):
    """Digits network as one program; ``results`` are keyed by PyTorch's module names."""

    def __init__(self, recorded: Case, count: int) -> None:
        super().__init__()
        self._recorded = recorded
        self._info = json.loads(str(recorded["info"]))
        self._count = count
        self.results: dict[str, str] = {}
        self._build()

    def _build(self) -> None:
        image = self.input(self._recorded["input_f32"][: self._count])
        q = self._begin("q", (self._count, 1, 8, 8))
        self.emit("quantize", q, image)
        first = self._begin("q", (self._count, 8, 8, 1))
        self.emit("transpose", first, q, Shuffle=[0, 2, 3, 1])
        c1 = self._layer("c1", first)
        pw = self._layer("blk.pw", self._layer("blk.dw", c1))
        block = self._begin("blk")
        self.emit("elementadd", block, pw, c1)
        self.emit("relu", block, block)
        pooled = self._begin("mp")
        self.emit("maxpool", pooled, block, **window(2), Layout=0)
        average = self._begin("ap")
        c2 = self._layer("c2", pooled)
        self.emit("avgpool", average, c2, **window(4), Layout=0, CountIncludePads=0)
        logits = self._layer("fc", self.view(average, (self._count, 32)))
        self.logits = self.output(make_kind(np.zeros((self._count, 10), np.float32)))
        self.emit("dequantize", self.logits, logits)

    def recorded(self, name: str) -> Array:
        """Return a recorded activation as Int8 with the channels last."""
        values = int8(self._recorded[f"act_{name}"][: self._count])
        return move_channels_last(values) if values.ndim == 4 else values

    def _begin(self, name: str, shape: tuple[int, ...] | None = None) -> str:
        scale, zero, _ = self._info[f"act_{name}"]
        values = np.zeros(shape or self.recorded(name).shape, np.uint8)
        self.results[name] = self.buffer(kind(values, scale, zero))
        return self.results[name]

    def _layer(self, name: str, x: str) -> str:
        about, y = self._info[f"layer_{name}"], self._begin(name)
        layer = {
            "w": self._recorded[f"w_{name}"],
            "w_scale": self._recorded[f"ws_{name}"].astype(np.float32),
            "bias": self._recorded[f"b_{name}"],
            "relu": "ReLU" in about["type"],
            "stride": about["stride"],
            "pad": about["padding"],
            "dil": (1, 1),
            "groups": about["groups"],
        }
        return (self.linear if layer["w"].ndim == 2 else self.convolution)(y, x, layer)


def window(size: int) -> dict[str, Any]:
    return {"Kernels": [size, size], "Strides": [size, size], "Pads": [0, 0, 0, 0]}


SAME = {"b1": "c1", "r1": "c1", "blk.bn1": "blk.dw", "blk.r1": "blk.dw", "blk.bn2": "blk.pw",
        "blk.add.activation_post_process": "blk", "b2": "c2", "r2": "c2"}  # fmt: skip
"""Modules that quantization folds into others: PyTorch gives the same for both."""


@pytest.mark.parametrize(("engine", "count"), [("compiled", 32), ("reference", 1)])
@pytest.mark.parametrize("torch_engine", ["fbgemm", "qnnpack"])
def test_every_activation_of_a_network_equals_pytorch(
    shared: Path, tmp_path: Path, torch_engine: str, engine: str, count: int
) -> None:
    z = np.load(shared / "golden" / "torch_digits" / f"digits_cnn_{torch_engine}.npz")
    program = Digits(dict(z), count)
    numerics = f"float-{torch_engine}"
    report = run(program, tmp_path, engine, numerics=numerics, fuse=False)
    names = {key[4:] for key in z.files if key.startswith("act_")}
    assert names == set(program.results) | set(SAME)
    for name in sorted(names):
        found = report.layer_outputs[program.keys[program.results[SAME.get(name, name)]]]
        np.testing.assert_array_equal(found, program.recorded(name), err_msg=name)
    np.testing.assert_array_equal(report.outputs[program.logits], z["logits"][:count])
    on_host = {layer.op for layer in report.layers if layer.placement == "host"}
    assert on_host <= {"quantize", "dequantize"}
