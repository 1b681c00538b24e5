"""Verify networks with LiteRT, ONNX Runtime and PyTorch, where they are installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pytest

import nmpsim
from nmpsim.core.inputs import prepare_inputs
from nmpsim.diagnostics import UserError
from nmpsim.references import open_reference
from nmpsim.references.pytorch import import_exported_program
from nmpsim.verification import verify_sample


@pytest.mark.parametrize(
    ("package", "name", "layers"),
    [
        ("ai_edge_litert", "resnet8_int8/model.tflite", 15),
        ("onnxruntime", "resnet8_float_ortq/model_qdq_u8s8_perchannel.onnx", 17),
        ("onnxruntime", "mnist_cntk/model_qoperator_u8s8_perchannel.onnx", 8),
    ],
)
def test_a_network_equals_its_runtime(shared: Path, package: str, name: str, layers: int) -> None:
    pytest.importorskip(package)
    model = shared / "models" / name
    bundle = nmpsim.compile(model, tiling="simple").bundle
    (data,) = bundle.metadata.inputs
    inputs = {data.name: np.load(model.with_name("inputs.npy"))[:1]}
    reference = open_reference(model, bundle.metadata)
    assert reference is not None
    run = reference.run(prepare_inputs(bundle, inputs))
    found = verify_sample(bundle, nmpsim.Device(threads=1), inputs, run)
    assert found.is_equal
    assert len(found.compared) == layers


@pytest.fixture
def torch_network() -> Any:
    """Quantized convolution with ReLU, pool and fully connected layer of PyTorch's fbgemm."""
    torch = pytest.importorskip("torch")
    nn, quantization = torch.nn, torch.ao.quantization
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = "fbgemm"
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(72, 4)
    )
    model = quantization.QuantWrapper(net).eval()
    quantization.fuse_modules(model, [["module.0", "module.1"]], inplace=True)
    model.qconfig = quantization.get_default_qconfig("fbgemm")
    quantization.prepare(model, inplace=True)
    torch.manual_seed(1)
    example = torch.randn(1, 3, 8, 8)
    model(example)
    yield torch, quantization.convert(model), example
    torch.backends.quantized.engine = before


@pytest.mark.filterwarnings("ignore")  # what PyTorch deprecates
def test_a_torchscript_file_is_a_reference(torch_network: Any, tmp_path: Path) -> None:
    torch, model, example = torch_network
    bundle = nmpsim.compile(nmpsim.from_torch(model, example), tiling="simple").bundle
    path = tmp_path / "model.pt"
    torch.jit.save(torch.jit.script(model), path)
    inputs = {bundle.metadata.inputs[0].name: example.numpy()}
    reference = open_reference(path, bundle.metadata)
    assert reference is not None
    assert reference.runtime.name.endswith("engine fbgemm")
    run = reference.run(prepare_inputs(bundle, inputs))
    found = verify_sample(bundle, nmpsim.Device(threads=1), inputs, run)
    assert found.is_equal
    assert len(found.compared) >= 5
    torch.save(torch.nn.ReLU(), path)
    with pytest.raises(UserError, match="no model that runs without its Python code"):
        open_reference(path, bundle.metadata)


def test_an_exported_program_is_a_reference(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    model, example = (
        torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU()),
        torch.ones(1, 3, 8, 8),
    )
    bundle = nmpsim.compile(nmpsim.from_torch(model.eval(), example), tiling="simple").bundle
    path = tmp_path / "model.pt2"
    torch.export.save(torch.export.export(model, (example,)), path)
    inputs = {bundle.metadata.inputs[0].name: example.numpy()}
    reference = open_reference(path, bundle.metadata)
    assert reference is not None
    run = reference.run(prepare_inputs(bundle, inputs))
    np.testing.assert_allclose(run.outputs["output"], model(example).detach().numpy(), atol=1e-6)
    assert verify_sample(bundle, nmpsim.Device(threads=1), inputs, run).compared


@pytest.mark.filterwarnings("ignore")  # what torchao deprecates
def test_a_model_of_pt2e_is_a_reference(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    pt2e = pytest.importorskip("torchao.quantization.pt2e.quantize_pt2e")
    kinds = pytest.importorskip("torchao.testing.pt2e._xnnpack_quantizer")
    layers = torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Conv2d(8, 4, 1)
    examples = (torch.linspace(-1, 1, 192).reshape(1, 3, 8, 8),)
    exported = torch.export.export(torch.nn.Sequential(*layers).eval(), examples).module()
    config = kinds.get_symmetric_quantization_config(is_per_channel=True)
    prepared = pt2e.prepare_pt2e(exported, kinds.XNNPACKQuantizer().set_global(config))
    prepared(*examples)
    model, path = pt2e.convert_pt2e(prepared), tmp_path / "model.pt2"
    torch.export.save(torch.export.export(model, examples), path)
    bundle = nmpsim.compile(nmpsim.from_torch(model, examples), tiling="simple").bundle
    inputs = {bundle.metadata.inputs[0].name: examples[0].numpy()}
    reference = open_reference(path, bundle.metadata)
    assert reference is not None
    run = reference.run(prepare_inputs(bundle, inputs))
    found = verify_sample(bundle, nmpsim.Device(threads=1), inputs, run)
    assert found.is_equal
    assert len(found.compared) == len(bundle.metadata.layers)
    imported = nmpsim.compile(import_exported_program(path), tiling="simple").bundle
    assert [one.op for one in imported.metadata.layers] == [
        one.op for one in bundle.metadata.layers
    ]


class Command:
    """Object whose unpickling creates a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_a_program_that_is_not_exported_is_no_model(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    path = tmp_path / "weights.pt"
    torch.save({"weight": torch.ones(2)}, path)
    with pytest.raises(UserError, match="MODEL001"):
        import_exported_program(path)
    path.write_bytes(b"PK is no archive")
    with pytest.raises(UserError, match="REF001"):
        import_exported_program(path)


def test_an_exported_program_cannot_run_pickled_code(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    example = torch.ones(2)
    bundle = nmpsim.compile(nmpsim.from_torch(torch.nn.ReLU().eval(), example)).bundle
    path, bad, made = tmp_path / "model.pt2", tmp_path / "bad.pt2", tmp_path / "made"
    torch.export.save(torch.export.export(torch.nn.ReLU(), (example,)), path)
    torch.save({"x": Command(made)}, tmp_path / "pickled")
    with ZipFile(path) as old, ZipFile(bad, "w") as new:
        for name in old.namelist():
            is_inputs = name.endswith("sample_inputs/model.pt")
            new.writestr(name, (tmp_path / "pickled").read_bytes() if is_inputs else old.read(name))
    with pytest.raises(UserError, match="PyTorch cannot run the model"):
        open_reference(bad, bundle.metadata)
    assert not made.exists()
