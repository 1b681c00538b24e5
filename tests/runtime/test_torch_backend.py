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


@pytest.mark.filterwarnings("ignore")  # what PyTorch deprecates
def test_a_compiled_model_equals_pytorch() -> None:
    torch: Any = pytest.importorskip("torch")
    pytest.importorskip("torch.ao.quantization.fx._decomposed")
    from nmpsim import torch_backend

    ops = torch.ops.quantized_decomposed

    class Network(torch.nn.Module):  # type: ignore[misc]
        """Convolution, ReLU and pool, quantized as PT2E does it."""

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("weights", torch.randint(-127, 128, (8, 3, 3, 3)).to(torch.int8))
            self.register_buffer("bias", torch.randn(8))

        def forward(self, x: Any) -> Any:
            weights = ops.dequantize_per_tensor(self.weights, 0.01, 0, -127, 127, torch.int8)
            for scale, zero in ((0.02, 128), (0.05, 0)):
                stored = ops.quantize_per_tensor(x, scale, zero, 0, 255, torch.uint8)
                x = ops.dequantize_per_tensor(stored, scale, zero, 0, 255, torch.uint8)
                if x.shape[1] == 3:
                    x = torch.relu(torch.nn.functional.conv2d(x, weights, self.bias, padding=1))
            return torch.nn.functional.max_pool2d(x, 2)

    torch.manual_seed(1)
    model = Network().eval()
    compiled = torch.compile(model, backend=torch_backend.compile_graph, fullgraph=True)
    with torch.no_grad():
        for _ in range(2):
            image = torch.randn(1, 3, 8, 8)
            step = (compiled(image) - model(image)).abs().max() / 0.05
            assert step < 1.001
    report = torch_backend.get_last_report()
    assert report is not None
    assert report.cycles > 0
    assert sum(layer.placement == "device" for layer in report.layers) >= 1
