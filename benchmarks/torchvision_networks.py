"""torchvision's quantizable networks on nmpsim: the table of docs/torch.md.

    python benchmarks/torchvision_networks.py [NETWORK ...] [--flow PATTERN]

Quantizes each network with random weights in several flows and compares the result for one image
with PyTorch's. A cell is ``equal``, the share of results that differ and the largest difference, or
the reason for which the network is refused. Exits with 1 if an eager or FX network differs.
Needs torchvision and torchao.
"""

from __future__ import annotations

import argparse
import re
import sys
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.ao.quantization as quantization
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

import nmpsim

_OPERATORS = torch.library.Library("torchvision", "FRAGMENT")
for name in ("nms", "qnms"):  # torchvision's Python files need them, also with another torch
    _OPERATORS.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
from torchvision import models  # noqa: E402

NETWORKS = [one.removeprefix("quantized_") for one in models.list_models(models.quantization)]
SIZES = {"inception_v3": 75, "shufflenet": 96}
"""Start of a name -> rows and columns; ShuffleNet averages 3 x 3 pixels of 96 x 96."""
DEFAULT_SIZE = 32


def make_images(network: str, count: int, seed: int) -> torch.Tensor:
    """Return random images for a network."""
    sizes = [size for start, size in SIZES.items() if network.startswith(start)]
    size = next(iter(sizes), DEFAULT_SIZE)
    return torch.randn(count, 3, size, size, generator=torch.Generator().manual_seed(seed))


def run_images(model: Any, network: str, count: int = 4) -> None:
    """Run a model on three batches, for its statistics or its observers."""
    with torch.no_grad():
        for seed in range(3):
            model(make_images(network, count, seed))


def build_network(network: str, source: Any) -> Any:
    """Return a network with random weights and the statistics of random images."""
    torch.manual_seed(1)
    options = {"aux_logits": False} if network in ("googlenet", "inception_v3") else {}
    model = getattr(source, network)(weights=None, **options).train()
    run_images(model, network)
    return model.eval()


def quantize_eager(network: str, engine: str) -> Any:
    """Quantize a network in eager mode for an engine."""
    model = build_network(network, models.quantization)
    model.fuse_model(is_qat=False)
    model.qconfig = quantization.get_default_qconfig(engine)
    prepared = quantization.prepare(model)
    run_images(prepared, network)
    return quantization.convert(prepared)


def quantize_fx(network: str, engine: str) -> Any:
    """Quantize a network by FX graph mode for an engine."""
    mapping = quantization.get_default_qconfig_mapping(engine)
    model = build_network(network, models)
    prepared = prepare_fx(model, mapping, (make_images(network, 1, 0),))
    run_images(prepared, network)
    return convert_fx(prepared)


def quantize_pt2e(network: str, quantizer: str) -> Any:
    """Quantize a network by torchao's PT2E with a quantizer."""
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86
    from torchao.testing.pt2e import _xnnpack_quantizer as xnnpack

    if quantizer == "XNNPACK":
        config = xnnpack.get_symmetric_quantization_config(is_per_channel=True)
        chosen = xnnpack.XNNPACKQuantizer().set_global(config)
    else:
        config = x86.get_default_x86_inductor_quantization_config()
        chosen = x86.X86InductorQuantizer().set_global(config)
    example = (make_images(network, 1, 0),)
    graph = torch.export.export(build_network(network, models), example).module()
    prepared = prepare_pt2e(graph, chosen)
    run_images(prepared, network, 1)
    return convert_pt2e(prepared)


FLOWS: dict[str, tuple[Callable[[str], Any], str]] = {
    "eager fbgemm": (partial(quantize_eager, engine="fbgemm"), "fbgemm"),
    "eager qnnpack": (partial(quantize_eager, engine="qnnpack"), "qnnpack"),
    "eager x86": (partial(quantize_eager, engine="x86"), "x86"),
    "FX x86": (partial(quantize_fx, engine="x86"), "x86"),
    "PT2E XNNPACK": (partial(quantize_pt2e, quantizer="XNNPACK"), "x86"),
    "PT2E X86Inductor": (partial(quantize_pt2e, quantizer="X86Inductor"), "x86"),
}


def compare(network: str, flow: str) -> str:
    """Quantize and run a network; return the cell of the table."""
    quantize, engine = FLOWS[flow]
    torch.backends.quantized.engine = engine
    image = make_images(network, 1, 99)
    try:
        model = quantize(network)
    except ValueError as error:
        return f"the quantizer fails: {error}"
    with torch.no_grad():
        expected = model(image).numpy()
    try:
        program = nmpsim.from_torch(model, image, engine=engine)
        bundle = nmpsim.compile(program, tiling="simple").bundle
    except nmpsim.UserError as error:
        return f"refused: {error.diagnostics[0].found}"
    report = nmpsim.Device(threads=1).run(bundle, [image.numpy()])
    (found,) = report.outputs.values()
    conversions = ("quantize", "dequantize")
    layers = [layer.placement for layer in report.layers if layer.op not in conversions]
    host = f", {layers.count('host')} of {len(layers)} layers on the host" * ("host" in layers)
    if np.array_equal(found, expected):
        return f"equal{host}"
    differs = found != expected
    largest = np.abs(found - expected).max() / np.abs(expected).max()
    return f"{differs.mean():.0%} differ by at most {largest:.1g} of the largest result{host}"


def main() -> int:
    """Compare the chosen networks and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("networks", nargs="*", metavar="NETWORK", default=NETWORKS)
    parser.add_argument("--flow", default="", help="regular expression of the flows")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    is_wrong = False
    for network in arguments.networks:
        for flow in filter(re.compile(arguments.flow).search, FLOWS):
            cell = compare(network, flow)
            is_wrong |= "differ" in cell and not flow.startswith("PT2E")
            print(f"| {network} | {flow} | {cell} |", flush=True)
    return int(is_wrong)


if __name__ == "__main__":
    sys.exit(main())
