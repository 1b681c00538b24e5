"""Float PyTorch models: written by hand, equal to formulas in NumPy; live ones where there are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from torch_records import RecordingWriter

import nmpsim
from nmpsim.frontends import ImportedModel
from nmpsim.frontends.torch import lower_recording
from nmpsim.frontends.torch.recording import RecordedTensor
from nmpsim.interpreter import compute_sqnr_db, execute_real

Array = np.ndarray[Any, Any]
SAMPLES = np.random.default_rng(11).normal(size=(8, 1, 4, 4, 6)).astype(np.float32)
X = SAMPLES[0]


def run_in_float(program: ImportedModel, x: Array) -> Array:
    """Return the output of the float program."""
    *_, (_, _, values) = execute_real(program.module, {"x": x}, hidden_relu=False)
    (y,) = (one for one in program.module.weights if one.name == "output")
    return values.reshape(y.type.shape)


class FloatRecordingWriter(RecordingWriter):
    """Writer of a recorded run of float operations."""

    def __init__(self) -> None:
        super().__init__("fbgemm")
        self.x = self.tensor(X.shape)

    def constant(self, values: Array, name: str = "") -> RecordedTensor:
        return self.tensor(values.shape, values=values.astype(np.float32), name=name)

    def lowered(self, y: RecordedTensor) -> ImportedModel:
        return lower_recording(self.recorded({"x": self.x}, y))


def record_small_network() -> tuple[ImportedModel, Any]:
    """Return a small CNN imported from a recorded run, and the same network in NumPy."""
    run, rng = FloatRecordingWriter(), np.random.default_rng(5)
    w, b = rng.normal(size=(8, 4, 1, 1)) / 2, rng.normal(size=8)
    gamma, beta, mean, var = rng.uniform(0.5, 1.5, (4, 8))
    fc, bias = rng.normal(size=(8, 5)), rng.normal(size=5)
    conv = run.call(
        "aten.convolution", "conv", run.tensor((1, 8, 4, 6)), input=run.x,
        weight=run.constant(w, "conv.weight"), bias=run.constant(b, "conv.bias"), stride=(1, 1),
        padding=(0, 0), dilation=(1, 1), transposed=False, output_padding=(0, 0), groups=1,
    )  # fmt: skip
    norm = run.call(
        "aten.native_batch_norm", "bn", run.tensor((1, 8, 4, 6)), input=conv,
        weight=run.constant(gamma), bias=run.constant(beta), running_mean=run.constant(mean),
        running_var=run.constant(var), training=False, momentum=0.1, eps=1e-5,
    )  # fmt: skip
    clip = run.call(
        "aten.hardtanh", "act", run.tensor((1, 8, 4, 6)), self=norm, min_val=0, max_val=6
    )
    pool = run.call(
        "aten.max_pool2d_with_indices", "pool", run.tensor((1, 8, 2, 3)), self=clip,
        kernel_size=(2, 2), stride=(), padding=(0, 0), dilation=(1, 1), ceil_mode=False,
    )  # fmt: skip
    average = run.call(
        "aten.mean", "mean", run.tensor((1, 8)), self=pool, dim=(-1, -2), keepdim=False
    )
    scores = run.call(
        "aten.addmm", "fc", run.tensor((1, 5)), self=run.constant(bias), mat1=average,
        mat2=run.constant(fc), alpha=1, beta=1,
    )  # fmt: skip

    def by_hand(x: Array) -> Array:
        y = np.einsum("nchw,oc->nohw", x, w[..., 0, 0]) + b.reshape(8, 1, 1)
        line = [one.reshape(8, 1, 1) for one in (gamma, beta, mean, var)]
        y = np.clip((y - line[2]) / np.sqrt(line[3] + 1e-5) * line[0] + line[1], 0, 6)
        y = y.reshape(1, 8, 2, 2, 3, 2).max((3, 5)).mean((2, 3))
        return np.asarray(y @ fc + bias)

    return run.lowered(scores), by_hand


def test_a_float_network_equals_pytorch() -> None:
    program, by_hand = record_small_network()
    np.testing.assert_allclose(run_in_float(program, X), by_hand(X), rtol=1e-5, atol=1e-5)
    operators = {operator.node: operator for operator in program.operators}
    assert operators["1 aten.native_batch_norm bn"].why == "part of 0 aten.convolution conv"
    assert operators["5 aten.addmm fc"].layers == ("fc",)


def test_a_float_network_is_quantized() -> None:
    program, by_hand = record_small_network()
    quantized = nmpsim.quantize(program, calibration={"x": SAMPLES}, per_channel=True)
    assert not quantized.staying_float
    bundle = nmpsim.compile(quantized, tiling="simple").bundle
    output = nmpsim.Device(threads=1).run(bundle, {"x": X}).outputs["output"]
    right = by_hand(X)
    assert compute_sqnr_db(right, output - right) > 28
    assert {"act", "pool", "mean", "fc"} <= {layer.name for layer in bundle.metadata.layers}


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


CASES: dict[str, tuple[str, dict[str, Any], Any]] = {
    "silu": ("aten.silu", {}, lambda x: x * sigmoid(x)),
    "hardswish": ("aten.hardswish", {}, lambda x: x * np.clip(x / 6 + 0.5, 0, 1)),
    "hardsigmoid": ("aten.hardsigmoid", {}, lambda x: np.clip(x / 6 + 0.5, 0, 1)),
    "leaky": ("aten.leaky_relu", {"negative_slope": 0.1}, lambda x: np.where(x > 0, x, x * 0.1)),
    "elu": (
        "aten.elu",
        {"alpha": 1.5, "scale": 2, "input_scale": 0.5},
        lambda x: 2 * np.where(x > 0, x, 1.5 * (np.exp(x / 2) - 1)),
    ),
    "celu": ("aten.celu", {"alpha": 2.0}, lambda x: np.where(x > 0, x, 2 * (np.exp(x / 2) - 1))),
    "softplus": ("aten.softplus", {"beta": 2.0}, lambda x: np.log1p(np.exp(2 * x)) / 2),
    "mish": ("aten.mish", {}, lambda x: x * np.tanh(np.log1p(np.exp(x)))),
    "gelu": (
        "aten.gelu",
        {"approximate": "tanh"},
        lambda x: x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    ),
    "number": ("aten.add", {"other": 3, "alpha": 2}, lambda x: x + 6),
    "number times zero": ("aten.add", {"other": 3, "alpha": 0}, lambda x: x),
    "from a number": ("aten.rsub", {"other": 3, "alpha": 2}, lambda x: 3 - 2 * x),
    "limit": ("aten.clamp", {"min": None, "max": 0.25}, lambda x: np.minimum(x, 0.25)),
    "pad": ("aten.constant_pad_nd", {"pad": (1, 2, 0, 1), "value": 0.5},
            lambda x: np.pad(x, ((0, 0), (0, 0), (0, 1), (1, 2)), constant_values=0.5)),
    "permute": ("aten.permute", {"dims": (0, 2, 3, -3)}, lambda x: x.transpose(0, 2, 3, 1)),
    "turn": ("aten.transpose", {"dim0": -1, "dim1": 1}, lambda x: x.transpose(0, 3, 2, 1)),
    "part": ("aten.slice", {"dim": 3, "start": 1, "end": 9**19, "step": 1}, lambda x: x[..., 1:]),
    "one": ("aten.select", {"dim": 1, "index": -2}, lambda x: x[:, -2]),
    "softmax": ("aten._softmax", {"dim": -1, "half_to_float": False},
                lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True)),
    "average": ("aten.mean", {"dim": (2, 3), "keepdim": True},
                lambda x: x.mean((2, 3), keepdims=True)),
    "adaptive": ("aten._adaptive_avg_pool2d", {"output_size": (2, 2)},
                 lambda x: x.reshape(1, 4, 2, 2, 2, 3).mean((3, 5))),
    "shuffle": ("aten.channel_shuffle", {"groups": 2}, lambda x: x[:, [0, 2, 1, 3]]),
    "larger": ("aten.upsample_nearest2d", {"output_size": (8, 12)},
               lambda x: x.repeat(2, 2).repeat(2, 3)),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_an_operation_equals_pytorch(case: str) -> None:
    operation, arguments, formula = CASES[case]
    run, right = FloatRecordingWriter(), formula(X.astype(np.float64))
    y = run.call(operation, "op", run.tensor(right.shape), self=run.x, **arguments)
    np.testing.assert_allclose(run_in_float(run.lowered(y), X), right, rtol=1e-5, atol=1e-6)


def test_parts_and_sums_equal_pytorch() -> None:
    run = FloatRecordingWriter()
    halves = tuple(run.tensor((1, 2, 4, 6)) for _ in range(2))
    run.call("aten.split", "split", halves[0], self=run.x, split_size=2, dim=1)
    run.calls[-1] = nmpsim.frontends.torch.recording.RecordedCall(
        0, "aten.split", "split", run.calls[-1].arguments, halves
    )
    total = run.call(
        "aten.sub", "sum", run.tensor((1, 2, 4, 6)), self=halves[0], other=halves[1], alpha=0.5
    )
    joined = run.call(
        "aten.cat", "cat", run.tensor((1, 4, 4, 6)), tensors=(total, halves[0]), dim=-3
    )
    right = np.concatenate([X[:, :2] - X[:, 2:] / 2, X[:, :2]], 1)
    np.testing.assert_allclose(run_in_float(run.lowered(joined), X), right, rtol=1e-6)


def test_unknown_operations_are_named() -> None:
    run = FloatRecordingWriter()
    first = run.call("aten.fft", "spectrum", run.tensor(X.shape), self=run.x)
    other = run.call("aten.avg_pool2d", "pool", run.tensor((1, 4, 2, 3)), self=run.x,
                     kernel_size=(2, 2), stride=(), padding=(0, 0), ceil_mode=False,
                     count_include_pad=True, divisor_override=3)  # fmt: skip
    mixed = run.call("aten.cat", "cat", run.tensor((1, 4, 2, 3)), tensors=(first, other), dim=1)
    with pytest.raises(nmpsim.UserError) as error:
        run.lowered(mixed)
    assert [one.message for one in error.value.diagnostics] == [
        "operator 0 aten.fft spectrum cannot be compiled",
        "operator 1 aten.avg_pool2d pool cannot be compiled",
    ]


def test_a_live_float_model_is_imported() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    nn = torch.nn
    torch.manual_seed(2)
    model = nn.Sequential(
        nn.Conv2d(4, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.Hardswish(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 3),
    ).eval()
    examples = [torch.randn(2, 4, 6, 6) for _ in range(4)]
    example = examples[0][:1]
    right = model(example).detach().numpy()
    program = nmpsim.from_torch(model, example)
    np.testing.assert_allclose(
        nmpsim.Device().run(nmpsim.compile(program), [example.numpy()]).outputs["output"],
        right,
        atol=1e-6,
    )
    program = nmpsim.from_torch(model, example, calibration=examples, per_channel=True)
    bundle = nmpsim.compile(program).bundle
    inputs = {"input": example.numpy()}
    report = nmpsim.Device().run(bundle, inputs, save_layers=True)
    assert compute_sqnr_db(right, report.outputs["output"] - right) > 25
    shadow = nmpsim.Shadow(bundle).evaluate(report, inputs).shadow
    assert shadow is not None
    assert shadow.float_weights == "the bundle"
    with pytest.raises(nmpsim.UserError, match="for x, _ in loader"):
        nmpsim.from_torch(model, example, calibration=[(one, 1) for one in examples])
