"""Recorded runs of PyTorch models, made from files without PyTorch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nmpsim.frontends.torch.recording import (
    ModelRecording,
    QuantizedWeights,
    RecordedCall,
    RecordedTensor,
)

Array = npt.NDArray[Any]


def make_pair(value: Any) -> tuple[int, int]:
    """Return a size for both dimensions, or the two given sizes."""
    return (value, value) if isinstance(value, int) else (value[0], value[1])


def get_layer_engine(engine: str, is_linear: bool) -> str:
    """Return the engine of a layer: x86 uses onednn for convolutions, fbgemm for linear layers."""
    if engine != "x86":
        return engine
    return "fbgemm" if is_linear else "onednn"


def pack_weights(
    engine: str, weights: Array, scales: Array, bias: Array | None, **sizes: Any
) -> QuantizedWeights:
    """Return the weights of a layer as the recorder does."""
    return QuantizedWeights(
        weights,
        np.asarray(scales, np.float32),
        np.zeros(len(scales), np.int64),
        len(scales) > 1,
        bias if bias is not None and bias.size else None,
        get_layer_engine(engine, weights.ndim == 2),
        **sizes,
    )


class RecordingWriter:
    """Writer of a recorded run."""

    def __init__(self, engine: str) -> None:
        self.engine = engine
        self.calls: list[RecordedCall] = []
        self._count = 0

    def tensor(
        self, shape: tuple[int, ...], scale: Any = None, zero: Any = 0, **more: Any
    ) -> RecordedTensor:
        self._count += 1
        dtype = "float32" if scale is None else "quint8"
        real = None if scale is None else float(scale)
        return RecordedTensor(self._count, dtype, shape, real, int(zero), **more)

    def call(
        self,
        operation: str,
        name: str,
        result: RecordedTensor,
        tables: tuple[Array, ...] = (),
        /,
        **arguments: Any,
    ) -> RecordedTensor:
        number = len(self.calls)
        self.calls.append(RecordedCall(number, operation, name, arguments, (result,), tables))
        return result

    def recorded(self, inputs: dict[str, RecordedTensor], output: RecordedTensor) -> ModelRecording:
        outputs = (("output", output),)
        return ModelRecording("Net", self.engine, tuple(inputs.items()), outputs, tuple(self.calls))


def record_operation(case: dict[str, Any], engine: str) -> tuple[ModelRecording, dict[str, Array]]:
    """Return a run of the operation in a file of golden/torch, and its inputs."""
    run, kind = RecordingWriter(engine), case["meta"]["kind"]
    result = run.tensor(case["y"].shape, case["y_scale"], case["y_zp"])
    if kind in ("add", "add_relu", "mul"):
        names = {"qa": "a", "qb": "b"}
    else:
        names = {"X" if kind == "linear" else "qx": "x"}
    inputs = {
        name: run.tensor(case[key].shape, case[f"{key}_scale"], case[f"{key}_zp"])
        for name, key in names.items()
    }
    more: dict[str, Any] = {}
    if kind in ("conv", "linear"):
        meta, sizes = case["meta"], {}
        if kind == "conv":
            sizes = {
                "stride": make_pair(meta["stride"]),
                "padding": make_pair(meta["pad"]),
                "dilation": make_pair(meta["dil"]),
                "groups": meta["groups"],
            }
        weights = pack_weights(engine, case["w"], case["w_scale"], case["bias"], **sizes)
        more = {"W_prepack" if kind == "linear" else "packed_weight": weights}
        kind = {"conv": "conv2d"}.get(kind, kind) + ("_relu" if meta["relu"] else "")
    run.call(f"quantized.{kind}", "layer", result, **inputs, **more)
    return run.recorded(inputs, result), {name: case[key] for name, key in names.items()}


class DigitsRecording:
    """Recorded run of the network of golden/torch_digits on its first ``count`` images."""

    def __init__(self, shared: Path, engine: str, count: int) -> None:
        file = shared / "golden" / "torch_digits" / f"digits_cnn_{engine}.npz"
        with np.load(file) as archive:
            self.arrays = {name: archive[name] for name in archive.files}
        self.info = json.loads(str(self.arrays["info"]))
        self.count = count

    def activation(self, name: str) -> Array:
        """Return the uint8 activations that PyTorch computed."""
        return self.arrays[f"act_{name}"][: self.count]

    def layer(self, name: str, engine: str) -> QuantizedWeights:
        about = self.info[f"layer_{name}"]
        names = ("stride", "padding", "groups")
        sizes = {n: about[n] if n == "groups" else make_pair(about[n]) for n in names if about[n]}
        arrays = (self.arrays[f"{what}_{name}"] for what in ("w", "ws", "b"))
        return pack_weights(engine, *arrays, **sizes)

    def recorded(self, engine: str) -> ModelRecording:
        run = RecordingWriter(engine)

        def made(name: str) -> RecordedTensor:
            scale, zero, _ = self.info[f"act_{name}"]
            return run.tensor(self.activation(name).shape, scale, zero)

        def weighted(name: str, source: RecordedTensor) -> RecordedTensor:
            layer = self.layer(name, engine)
            kind = "linear" if layer.weights.ndim == 2 else "conv2d"
            has_relu = "ReLU" in self.info[f"layer_{name}"]["type"]
            names = ("X", "W_prepack") if kind == "linear" else ("qx", "packed_weight")
            given = dict(zip(names, (source, layer), strict=True))
            operation = f"quantized.{kind}{'_relu' if has_relu else ''}"
            return run.call(operation, name, made(name), **given)

        image = run.tensor((self.count, 1, 8, 8))
        q = run.call("aten.quantize_per_tensor", "q", made("q"), self=image)
        c1 = weighted("c1", q)
        pw = weighted("blk.pw", weighted("blk.dw", c1))
        block = run.call("quantized.add_relu", "blk.add", made("blk"), qa=pw, qb=c1)
        window = {"kernel_size": (2, 2), "stride": (2, 2)}
        pooled = run.call("aten.quantized_max_pool2d", "mp", made("mp"), self=block, **window)
        average = run.call(
            "aten._adaptive_avg_pool2d", "ap", made("ap"), self=weighted("c2", pooled)
        )
        flat = run.tensor((self.count, 32), average.scale, average.zero_point)
        logits = weighted("fc", run.call("aten.view", "view", flat, self=average, size=flat.shape))
        output = run.call("aten.dequantize", "dq", run.tensor(logits.shape), self=logits)
        return run.recorded({"x": image}, output)


def record_half_bias(engine: str) -> ModelRecording:
    """Return a run whose convolution has weights of 0 and a bias of 0.5."""
    run, few = RecordingWriter(engine), 127 if engine == "fbgemm" else 255
    x = run.tensor((1, 5, 5, 5))
    q = run.tensor(x.shape, np.float32(1 / few))
    y = run.tensor((1, 2, 3, 3), np.float32(0.5 / few))
    weights = np.zeros((2, 5, 3, 3), np.int8)
    channels = 1 if engine == "qnnpack" else 2
    layer = pack_weights(engine, weights, np.full(channels, 2.0**-23), np.full(2, 0.5, np.float32))
    run.call("aten.quantize_per_tensor", "quant", q, self=x)
    run.call("quantized.conv2d", "conv", y, qx=q, packed_weight=layer)
    output = run.call("aten.dequantize", "dequant", run.tensor(y.shape), self=y)
    return run.recorded({"x": x}, output)
