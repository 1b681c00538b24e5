"""Live PyTorch models: every activation is PyTorch's. Skipped where PyTorch is not installed."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch_records import DigitsRecording, record_half_bias

import nmpsim
from nmpsim.frontends.torch import lower_recording

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
nniq = pytest.importorskip("torch.ao.nn.intrinsic.quantized")
nnq = pytest.importorskip("torch.ao.nn.quantized")
quantization = pytest.importorskip("torch.ao.quantization")
nn = torch.nn
live = pytest.importorskip("nmpsim.frontends.torch.recorder")

pytestmark = pytest.mark.filterwarnings("ignore")  # what PyTorch deprecates
ENGINES = ("fbgemm", "qnnpack", "onednn", "x86")
RNG = np.random.default_rng(4)


class Block(nn.Module):
    """Residual block of two convolutions."""

    def __init__(self, dw: Any, pw: Any, add: Any) -> None:
        super().__init__()
        self.dw, self.pw, self.add = dw, pw, add

    def forward(self, x: Any) -> Any:
        return self.add.add_relu(self.pw(self.dw(x)), x)


class LiveDigits(nn.Module):
    """Network of golden/torch_digits made of live modules."""

    def __init__(self, digits: DigitsRecording, engine: str) -> None:
        super().__init__()
        self._digits, self._engine = digits, engine
        scale, zero, _ = digits.info["act_q"]
        self.q = nnq.Quantize(scale, zero, torch.quint8)
        self.c1 = self._layer("c1")
        add = nnq.QFunctional()
        add.scale, add.zero_point = digits.info["act_blk"][:2]
        self.blk = Block(self._layer("blk.dw"), self._layer("blk.pw"), add)
        self.mp = nn.MaxPool2d(2)
        self.c2 = self._layer("c2")
        self.ap = nn.AdaptiveAvgPool2d(1)
        self.fc = self._layer("fc")
        self.dq = nnq.DeQuantize()
        self.eval()

    def forward(self, x: Any) -> Any:
        x = self.mp(self.blk(self.c1(self.q(x))))
        return self.dq(self.fc(torch.flatten(self.ap(self.c2(x)), 1)))

    def _layer(self, name: str) -> Any:
        about, layer = self._digits.info[f"layer_{name}"], self._digits.layer(name, self._engine)
        outs, ins = layer.weights.shape[0], layer.weights.shape[1] * layer.groups
        if layer.weights.ndim == 2:
            made = nnq.Linear(ins, outs)
        else:
            kind = nniq.ConvReLU2d if "ReLU" in about["type"] else nnq.Conv2d
            made = kind(
                ins, outs, layer.weights.shape[2:], about["stride"], about["padding"], 1,
                layer.groups,
            )  # fmt: skip
        values = torch.from_numpy(layer.weights)
        if layer.is_per_channel:
            scales = torch.from_numpy(layer.scales.astype(np.float64))
            zeros = torch.zeros(outs, dtype=torch.int64)
            weights = torch._make_per_channel_quantized_tensor(values, scales, zeros, 0)
        else:
            weights = torch._make_per_tensor_quantized_tensor(values, float(layer.scales[0]), 0)
        made.set_weight_bias(weights, torch.from_numpy(layer.bias))
        made.scale, made.zero_point = about["scale"], about["zp"]
        return made


@pytest.fixture(autouse=True)
def engine_stays() -> Any:
    before = torch.backends.quantized.engine
    yield
    torch.backends.quantized.engine = before


def compare(model: Any, example: Any, engine: str) -> int:
    """Compare every layer that holds an operation's result; return the number of layers."""
    kept: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        plain = live._Recorder._set

        def set_and_keep(self: Any, value: Any, *more: Any, **given: Any) -> Any:
            tensor = plain(self, value, *more, **given)
            stored = value.int_repr() if value.is_quantized else value
            kept[tensor.number] = stored.detach().numpy().copy()
            return tensor

        patch.setattr(live._Recorder, "_set", set_and_keep)
        recorded = live.record_model(model, example, engine)
    imported = lower_recording(recorded)
    bundle = nmpsim.compile(imported, tiling="simple", fuse=False).bundle
    report = nmpsim.Device(threads=1).run(bundle, [example.numpy()], save_layers=True)
    layers = {key.partition(":")[2]: values for key, values in report.layer_outputs.items()}
    compared = 0
    for call, operator in zip(recorded.calls, imported.operators, strict=True):
        expected = kept[call.results[-1].number]
        if operator.layers and not operator.layers[-1].endswith(("_last", "_plain")):
            found = layers[operator.layers[-1]]
            if found.ndim > expected.ndim:  # the layer's result is read by a view
                found = found.reshape(expected.shape)
            if expected.dtype == np.uint8:
                expected = (expected.astype(np.int16) - 128).astype(np.int8)
            if found.shape != expected.shape or not np.array_equal(found, expected):
                expected = np.moveaxis(expected, 1, -1)
            np.testing.assert_array_equal(found, expected, err_msg=call.label)
            compared += 1
    for name, tensor in recorded.outputs:
        np.testing.assert_array_equal(report.outputs[name], kept[tensor.number])
    return compared


@pytest.mark.parametrize("engine", ENGINES)
def test_the_recorded_digits_equal_pytorch(engine: str, shared: Path) -> None:
    torch.backends.quantized.engine = engine
    digits = DigitsRecording(shared, "qnnpack" if engine == "qnnpack" else "fbgemm", 32)
    model = LiveDigits(digits, engine)
    example = torch.from_numpy(digits.arrays["input_f32"])
    assert compare(model, example, engine) == 10
    if engine in ("fbgemm", "qnnpack"):
        np.testing.assert_array_equal(model(example).numpy(), digits.arrays["logits"])
    imported = nmpsim.from_torch(model, example)
    names = [operator.layers[-1] for operator in imported.operators if operator.layers]
    assert names == ["q", "c1", "blk.dw", "blk.pw", "blk.add", "mp", "c2", "ap", "fc", "dq"]


class Question(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.quant, self.dequant = quantization.QuantStub(), quantization.DeQuantStub()
        self.conv = nn.Conv2d(5, 2, 3)
        nn.init.zeros_(self.conv.weight)
        nn.init.constant_(self.conv.bias, 0.5)

    def forward(self, x: Any) -> Any:
        return self.dequant(self.conv(self.quant(x)))


@pytest.mark.parametrize("engine", ["qnnpack", "onednn", "fbgemm"])
def test_bundles_of_the_tutorial_equal_a_live_model(engine: str) -> None:
    torch.backends.quantized.engine = engine
    model, ones = Question().eval(), torch.ones(1, 5, 5, 5)
    model.qconfig = quantization.get_default_qconfig(engine)
    quantization.prepare(model, inplace=True)(ones)
    live_one = nmpsim.from_torch(quantization.convert(model, inplace=True), ones)
    written = lower_recording(record_half_bias(engine))
    assert [operator.layers for operator in live_one.operators] == [
        operator.layers for operator in written.operators
    ]
    for name, values in written.module.constants.items():
        np.testing.assert_array_equal(values, live_one.module.constants[name])
    kinds = [{weight.name: weight.type for weight in one.module.weights} for one in
             (live_one, written)]  # fmt: skip
    assert kinds[0] == kinds[1]


class Everything(nn.Module):
    """Float network to be quantized, with operations that the digits network lacks."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.dq = quantization.QuantStub(), quantization.DeQuantStub()
        self.stem = nn.Conv2d(3, 20, 3, padding=1)
        self.wide = nn.Conv2d(20, 20, 3, dilation=2, padding=2, groups=4, bias=False)
        self.gate = nn.Conv2d(20, 20, 1)
        self.se, self.cat = nn.quantized.FloatFunctional(), nn.quantized.FloatFunctional()
        self.hard, self.swish, self.tanh = nn.Hardsigmoid(), nn.Hardswish(), nn.Tanh()
        self.pool, self.mean = nn.AvgPool2d(3, 1, 1), nn.AdaptiveAvgPool2d(1)
        self.relu, self.drop = nn.ReLU(inplace=True), nn.Dropout()
        self.fc, self.last = nn.Linear(48 * 9, 7), nn.Linear(7, 3)

    def forward(self, x: Any) -> Any:
        x = self.relu(self.stem(self.q(x)))
        x = self.se.mul(x, self.hard(self.gate(self.mean(x))))
        n, c, h, w = x.shape
        x = x.reshape(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)
        first, second = self.swish(self.wide(x)).chunk(2, 1)
        x = self.cat.cat([second, self.pool(x), self.tanh(first), first], 1)
        x = torch.max_pool2d(x[:, :48], 3, ceil_mode=True, stride=2)
        return {"scores": self.dq(self.last(self.relu(self.fc(self.drop(x.flatten(1))))))}


def convert(engine: str) -> Any:
    torch.backends.quantized.engine = engine
    torch.manual_seed(3)
    model = Everything().eval()
    model.qconfig = quantization.get_default_qconfig(engine)
    quantization.prepare(model, inplace=True)
    model(torch.randn(4, 3, 6, 6))
    return quantization.convert(model)


@pytest.mark.parametrize("engine", ENGINES)
def test_recorded_operations_equal_pytorch(engine: str) -> None:
    assert compare(convert(engine), torch.randn(2, 3, 6, 6), engine) > 15


def test_traced_models_equal_pytorch() -> None:
    model, example = convert("fbgemm"), torch.randn(1, 3, 6, 6)
    scripted = torch.jit.trace(model, example, strict=False)
    assert compare(scripted, example, "fbgemm") > 15


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.c1, self.c2 = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.mp, self.ap, self.fc = nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        x = torch.relu(self.c1(x))
        return self.fc(self.ap(self.mp(torch.relu(x + self.c2(x)))).flatten(1))


@pytest.mark.parametrize("by_channel", [False, True])
def test_pt2e_differs_by_one_step_at_most(by_channel: bool) -> None:
    pt2e = pytest.importorskip("torchao.quantization.pt2e.quantize_pt2e")
    kinds = pytest.importorskip("torchao.testing.pt2e._xnnpack_quantizer")
    torch.manual_seed(1)
    examples = (torch.randn(2, 3, 8, 8),)
    config = kinds.get_symmetric_quantization_config(is_per_channel=by_channel)
    exported = torch.export.export(Small().eval(), examples).module()
    prepared = pt2e.prepare_pt2e(exported, kinds.XNNPACKQuantizer().set_global(config))
    prepared(*examples)
    model = pt2e.convert_pt2e(prepared)
    again = torch.export.export(model, examples)
    for one in (model, again):
        bundle = nmpsim.compile(nmpsim.from_torch(one, examples), tiling="simple").bundle
        report = nmpsim.Device(threads=1).run(bundle, [examples[0].numpy()])
        expected = model(*examples).detach().numpy()
        (found,) = report.outputs.values()
        assert np.abs(found - expected).max() <= 0.01, "a few steps of some 0.003"


class Between(nn.Module):
    """Function between a dequantization and a quantization of PT2E."""

    def __init__(self, function: Any, dtype: Any) -> None:
        super().__init__()
        self._function, self._dtype = function, dtype

    def forward(self, x: Any) -> Any:
        return self._convert(self._function(self._convert(x, 0.05)), 0.03)

    def _convert(self, x: Any, scale: float) -> Any:
        limits = torch.iinfo(self._dtype)
        settings = (scale, limits.max - 130, limits.min, limits.max, self._dtype)
        ops = torch.ops.quantized_decomposed
        return ops.dequantize_per_tensor(ops.quantize_per_tensor(x, *settings), *settings)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize(
    "function",
    [
        nn.functional.silu,
        nn.functional.gelu,
        nn.functional.hardswish,
        nn.functional.relu6,
        lambda x: x * nn.functional.relu6(x + 3) / 6,
    ],
)
def test_a_function_between_conversions_of_pt2e_is_a_table(function: Any, dtype: str) -> None:
    importlib.import_module("torch.ao.quantization.fx._decomposed")  # defines the operations
    model, x = Between(function, getattr(torch, dtype)).eval(), torch.linspace(-8, 8, 1024)
    bundle = nmpsim.compile(nmpsim.from_torch(model, x), tiling="simple").bundle
    (found,) = nmpsim.Device(threads=1).run(bundle, x.numpy()).outputs.values()
    assert np.array_equal(found, model(x).numpy())
    assert [layer.op for layer in bundle.metadata.layers][1:-1] == ["intlookuptable"]


def get_refusal(model: Any, *examples: Any, **given: Any) -> Any:
    with pytest.raises(nmpsim.UserError) as error:
        nmpsim.from_torch(model.eval(), examples, **given)
    return error.value.diagnostics[0]


class Function(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.q, self.function = nnq.Quantize(0.1, 10, torch.quint8), function

    def forward(self, x: Any) -> Any:
        return self.function(self.q(x))


def test_unsupported_operations_are_refused() -> None:
    x = torch.randn(1, 2, 4, 4)

    def changed_behind_its_back(q: Any) -> Any:
        q[:, :1].relu_()
        return torch.sigmoid(q)

    def steered(q: Any) -> Any:
        return q.relu() if float(q.dequantize()[0, 0, 0, 0]) > 0 else q.sigmoid()

    assert "was modified in place" in get_refusal(Function(changed_behind_its_back), x).found
    assert "reads the values" in get_refusal(Function(steered), x).found
    assert "no operation computes" in get_refusal(nn.Identity(), x).found
    assert get_refusal(Function(torch.relu), x, engine="none").code == "ARG001"
    assert get_refusal(Function(lambda q: "text"), x).found == "a result of type str"
    torch.backends.quantized.engine = "qnnpack"
    images = x.to(memory_format=torch.channels_last)
    assert (
        "several results for one input"
        in get_refusal(Function(lambda q: torch.clamp(q, 0, 1)), images).found
    )
    with pytest.raises(nmpsim.UserError, match=r"a torch\.nn\.Module"):
        nmpsim.from_torch("model.pt", x)
    training = Function(torch.relu)
    with pytest.raises(nmpsim.UserError, match=r"model\.eval\(\)"):
        nmpsim.from_torch(training, x)


TIES = 2.0**-6, 64, 2.0**-7
"""Scale and zero point of the input, scale of the result: many results lie between two steps."""


@pytest.mark.parametrize("size", [1, 256])
def test_functions_of_8_bits_become_tables(size: int) -> None:
    """torch-tails: what does not fill a vector rounds by another form."""
    scale, zero, to = TIES

    def swish(x: Any) -> Any:
        return torch.ops.quantized.hardswish(x, to, 5)

    model = Function(swish).eval()
    model.q = nnq.Quantize(scale, zero, torch.quint8)
    values = torch.linspace(-1, 1.9, 256)[:size] if size > 1 else torch.tensor([1.1])
    assert compare(model, values, "fbgemm") == 2


def test_blocks_of_concatenations_are_joined() -> None:
    """Channels that lie next to each other, 64 at once."""
    scale, zero, to = TIES

    def join(x: Any) -> Any:
        x = x.contiguous(memory_format=torch.channels_last)
        few = x[:, :5].contiguous(memory_format=torch.channels_last)
        return torch.ops.quantized.cat([x, few], 1, to * 6, 5)

    model = Function(join).eval()
    model.q = nnq.Quantize(scale, zero, torch.quint8)
    assert compare(model, torch.randn(1, 70, 4, 4), "fbgemm") > 1


def to_channels_last(x: Any) -> Any:
    """Return an image with its channels last in memory."""
    return x.contiguous(memory_format=torch.channels_last)


class Normalized(nn.Module):
    """Normalizations, means and a concatenation of images with different scales."""

    def __init__(self) -> None:
        super().__init__()
        self.q = nnq.Quantize(0.05, 90, torch.quint8)
        values = [RNG.normal(1, 0.7, 21), RNG.normal(0, 1, 21), RNG.normal(0, 1, 21)]
        values[0][::5] = 0
        self.parts = [torch.tensor(one, dtype=torch.float32) for one in values]
        self.parts.append(torch.tensor(RNG.uniform(0.01, 3, 21), dtype=torch.float32))

    def forward(self, x: Any) -> Any:
        ops = torch.ops.quantized
        x = to_channels_last(self.q(x))
        plain = ops.batch_norm2d(x, *self.parts, 1e-3, 0.07, 120)
        clipped = ops.batch_norm2d_relu(x, *self.parts, 1e-3, 0.04, 30)
        joined = torch.cat([plain, clipped], 1)  # on the scale of its first part
        means = joined.mean((2, 3)), plain.mean((-1, -2), keepdim=True)
        return *means, x[..., :4].contiguous().mean(3)


@pytest.mark.parametrize("engine", ENGINES)
def test_normalizations_and_means_equal_pytorch(engine: str) -> None:
    torch.backends.quantized.engine = engine
    model, x = Normalized().eval(), torch.tensor(RNG.normal(0, 4, (2, 21, 5, 5)), dtype=torch.float)
    assert compare(model, x, engine) > 5
    if engine != "qnnpack":  # which sums integers
        found = get_refusal(Function(lambda q: to_channels_last(q).mean((2, 3))), x[:, :, :2]).found
        assert found == "a mean of 10 values not in order in memory"


def test_unused_operations_are_omitted() -> None:
    def logs(q: Any) -> Any:
        q.dequantize().cumsum(1)
        return q.relu()

    imported = nmpsim.from_torch(Function(logs).eval(), torch.randn(1, 2, 4, 4))
    assert [operator.node.split()[1] for operator in imported.operators] == [
        "aten.quantize_per_tensor",
        "aten.relu",
    ]
    assert imported.unsigned == {"output"}
