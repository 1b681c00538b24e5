"""Compare every saturation count with a NumPy evaluation that does not saturate.

With power-of-two scales and zero offsets the arithmetic is a shift that rounds half up, so the
evaluation here is a few lines of NumPy integers and shares nothing with the kernels.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product
from typing import Any

import attrs
import numpy as np
import pytest
from shadow_samples import parse_module
from shared_files import shared_folder
from tiers import pairwise

from nmpsim import Device, default_device
from nmpsim.analysis.shadow.recording import ExecutedLayer, LayerInstruction, LayerReplay
from nmpsim.bundle import parse_bundle
from nmpsim.compiler.driver import compile_module
from nmpsim.lir.constants import attach_constants
from nmpsim.lir.nodes import Module, TensorType
from nmpsim.lir.parser import parse_file
from nmpsim.report.data import LayerReport, RunReport, Saturation

CONFIG = attrs.evolve(default_device(), cores_count=4)
ENGINES = ("compiled", "reference")
LENET = shared_folder() / "lir/lenet/i8_pow2_b8"
NARROWER = 16
Array = np.ndarray[Any, Any]


@cache
def device(engine: str) -> Device:
    return Device(CONFIG, engine)


def run(module: Module, inputs: dict[str, Array], engine: str, fuse: bool) -> RunReport:
    bundle = parse_bundle(compile_module(module, CONFIG, fuse_activations=fuse))
    return device(engine).run(bundle, inputs, save_layers=True)


def narrow_ranges(module: Module) -> Module:
    """Return the module with activation ranges divided by 16, so that many values saturate."""

    def narrow(value: Any) -> Any:
        if not isinstance(value, TensorType) or value.quant is None:
            return value
        return attrs.evolve(
            value, quant=attrs.evolve(value.quant, scale=value.quant.scale / NARROWER)
        )

    instructions = tuple(
        attrs.evolve(i, attributes={key: narrow(value) for key, value in i.attributes.items()})
        for i in module.instructions
    )
    return attrs.evolve(module, instructions=instructions)


def count_saturated(
    unclipped: Array, low: int, high: int, stages: tuple[str, str]
) -> tuple[Saturation, ...]:
    """Count the values that saturate when integers are clamped to a range."""
    found = []
    for stage, side, over in (
        (stages[0], "low", low - unclipped),
        (stages[1], "high", unclipped - high),
    ):
        hit = np.argwhere(over > 0)
        if len(hit):
            channels, counts = np.unique(hit[:, -1], return_counts=True)
            found.append(
                Saturation(
                    stage=stage,
                    side="low" if side == "low" else "high",
                    count=len(hit),
                    elements=unclipped.size,
                    worst=int(over.max()),
                    first=tuple(int(i) for i in hit[0]),
                    channels=tuple(zip(channels.tolist(), counts.tolist(), strict=True)),
                )
            )
    return tuple(found)


# A whole program


def get_scale(step: LayerInstruction, index: int) -> float:
    quant = step.operands[index].type.quant
    assert quant is not None
    assert quant.offset == 0
    return quant.scale


def shift_half_up(total: Array, factor: float) -> Array:
    """Return ``total * factor`` for a power of two, rounded half up."""
    return np.floor(total * factor + 0.5).astype(np.int64)


def sums(step: LayerInstruction) -> Array:
    """Return products with weights plus the bias on their scale."""
    _, x, w, b = (operand.stored.astype(np.int64) for operand in step.operands)
    product = get_scale(step, 1) * get_scale(step, 2)
    bias = shift_half_up(b, get_scale(step, 3) / product)
    if step.instruction.opcode == "fullyconnected":
        return x @ w + bias
    top, left, bottom, right = step.instruction.attributes["Pads"]
    padded = np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, w.shape[1:3], (1, 2))
    return np.einsum("nyxcij,oijc->nyxo", windows, w) + bias


def expected(steps: tuple[LayerInstruction, ...]) -> tuple[Saturation, ...]:
    step = steps[0]
    opcode = step.instruction.opcode
    if opcode == "quantize":
        real = step.operands[1].stored / np.float32(get_scale(step, 0))
        return count_saturated(np.rint(real).astype(np.int64), -128, 127, ("input", "input"))
    if opcode not in ("convolution", "fullyconnected"):
        return ()
    factor = get_scale(step, 1) * get_scale(step, 2) / get_scale(step, 0)
    relu = len(steps) > 1 or step.instruction.attributes.get("FusedActivation") == "RELU"
    stages = ("activation" if relu else "result", "result")
    return count_saturated(shift_half_up(sums(step), factor), 0 if relu else -128, 127, stages)


def compared_layers(
    report: RunReport, module: Module, inputs: dict[str, Array]
) -> Iterator[tuple[LayerReport, ExecutedLayer]]:
    numbers = {i.name: i.number for i in module.instructions}
    chains = [[numbers[n] for n in layer.fused] or [layer.number] for layer in report.layers]
    outputs = {int(key.split(":")[0]): array for key, array in report.layer_outputs.items()}
    done = LayerReplay(module).replay(chains, inputs, outputs)
    yield from zip(report.layers, done, strict=True)


@pytest.mark.parametrize(
    ("engine", "fuse", "flavour"), pairwise(product(ENGINES, (True, False), ("cpu", "cpumax")))
)
def test_saturation_of_narrow_ranges_is_counted(
    shared: Any, flavour: str, fuse: bool, engine: str
) -> None:
    names = [LENET / f"{flavour}.{ending}" for ending in ("lir.txt", "npz", "tensors.json")]
    module, _ = attach_constants(parse_file(names[0]), names[1], names[2])
    module = narrow_ranges(module)
    with np.load(names[1]) as archive:
        inputs = {"data": archive["input/data"]}
    report = run(module, inputs, engine, fuse)
    cut = 0
    for layer, done in compared_layers(report, module, inputs):
        if layer.op in ("relu", "cpumaxsplat", "softmax"):
            continue  # by itself a clip that the network asks for; softmax has no unclipped value
        assert set(layer.saturation) == set(expected(done.steps)), layer.name
        cut += layer.saturated
    assert cut > 500


# Shapes


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "shape",
    [(37,), (1, 500), (9, 33), (3, 5, 20), (2, 3, 14, 6), (1, 16, 1, 1), (2, 2, 3, 2, 5), (1, 1)],
    ids=str,
)
def test_ambiguous_shapes_count_by_channel(shape: tuple[int, ...], engine: str) -> None:
    """Counts are by index of the last dimension, whatever it means."""
    type_ = f"i8[S:1.000000000 O:0][-128.000,127.000]<{' x '.join(map(str, shape))}>"
    module = parse_module(
        f"""
        %a = WeightVar {type_} mutable
        %b = WeightVar {type_} mutable
        %y = WeightVar {type_} mutable
        """,
        "%add = elementadd @out %y, @in %a, @in %b",
    )
    rng = np.random.default_rng(len(shape))
    inputs = {name: rng.integers(-128, 128, shape).astype(np.int8) for name in "ab"}
    inputs["a"].flat[-1] = inputs["b"].flat[-1] = 127
    (layer,) = run(module, inputs, engine, fuse=True).layers
    total = inputs["a"].astype(np.int64) + inputs["b"]
    assert set(layer.saturation) == set(count_saturated(total, -128, 127, ("result", "result")))
    assert layer.elements == total.size


@pytest.mark.parametrize("engine", ENGINES)
def test_a_quantized_nchw_image_counts_by_channel(engine: str) -> None:
    shape = (1, 3, 8, 5)
    dims = " x ".join(map(str, shape))
    module = parse_module(
        f"""
        %x = WeightVar float<{dims}> mutable
        %y = WeightVar i8[S:1.000000000 O:0][-128.000,127.000]<{dims}> mutable
        """,
        "%quantize = quantize @out %y, @in %x",
    )
    x = np.random.default_rng(0).normal(0, 100, shape).astype(np.float32)
    (layer,) = run(module, {"x": x}, engine, fuse=True).layers
    assert set(layer.saturation) == set(
        count_saturated(np.rint(x).astype(np.int64), -128, 127, ("input", "input"))
    )
