"""Test the backend of torch.compile on quantized networks; skipped without PyTorch."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest


def test_the_package_names_the_backend() -> None:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    points = tomllib.loads(text)["project"]["entry-points"]
    assert points["torch_dynamo_backends"] == {"nmpsim": "nmpsim.torch_backend:compile_graph"}


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
@pytest.mark.parametrize("engine", ["fbgemm", "qnnpack"])
def test_a_compiled_model_equals_pytorch(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch: Any = pytest.importorskip("torch")
    from torch.ao import quantization

    from nmpsim import torch_backend

    if engine not in torch.backends.quantized.supported_engines:
        pytest.skip(f"this PyTorch has no engine {engine}")
    monkeypatch.setattr(torch.backends.quantized, "engine", engine)
    torch.manual_seed(1)
    layers = (torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.AvgPool2d(2))
    stubs = quantization.QuantStub(), quantization.DeQuantStub()
    model = torch.nn.Sequential(stubs[0], *layers, stubs[1]).eval()
    model.qconfig = quantization.get_default_qconfig(engine)
    model = quantization.fuse_modules(model, [["1", "2"]])
    quantization.prepare(model, inplace=True)
    image = torch.randn(1, 3, 8, 8)
    model(image)
    quantization.convert(model, inplace=True)
    compiled = torch.compile(model, backend=torch_backend.compile_graph)
    with torch.no_grad():
        for sample in (image, torch.randn(1, 3, 8, 8)):
            assert torch.equal(compiled(sample), model(sample))
    report = torch_backend.get_last_report()
    assert report is not None and report.cycles > 0
