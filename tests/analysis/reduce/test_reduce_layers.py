"""Test that every layer of a recorded network can be extracted, and most reduced to one element."""

from pathlib import Path

import attrs
import numpy as np
import pytest

import nmpsim
from nmpsim.analysis.reduce import DifferenceFailure, reduce_program
from nmpsim.bundle import parse_bundle
from nmpsim.core.run import make_layer_key

DIGITS = Path(__file__).parents[3] / "programs" / "digits"
RNG = np.random.default_rng(1)
WHOLE = ("softmax",)
"""Operations that cannot be reduced to one element."""


def choose_element(bundle, layer):
    """Return the index of an element that the layer computes; for an insertion, an inserted one."""
    shape = layer.output.shape
    if layer.op != "inserttensor":
        return RNG.integers(np.prod(shape))
    (insertion,) = [i for i in bundle.module().instructions if i.name == layer.name]
    offsets = insertion.attributes["Offsets"]
    return np.ravel_multi_index((*offsets[:-1], offsets[-1] + 1), shape)


@pytest.mark.parametrize(
    ("network", "flavour"),
    [
        pytest.param("minires/i8_asym_b32", "cpumax", marks=pytest.mark.slow),
        pytest.param("minimob/i8_asym_b32", "cpu", marks=pytest.mark.slow),
        ("lenet/i16_pow2_b16", "nmpold"),
        ("lenet/i8_asym_b32_channelwise", "interp"),
    ],
)
def test_every_layer_is_reproduced(shared, network, flavour):
    stem = shared / "lir" / network / flavour
    compiled = nmpsim.compile(f"{stem}.lir.txt", f"{stem}.npz", f"{stem}.tensors.json")
    bundle, device = parse_bundle(compiled.image), nmpsim.Device()
    with np.load(f"{stem}.npz") as stored:
        inputs = {k.removeprefix("input/"): v for k, v in stored.items() if k.startswith("input/")}
    report = device.run(bundle, inputs, save_layers=True)
    for layer in bundle.metadata.layers:
        values = report.layer_outputs[make_layer_key(layer)]
        at = choose_element(bundle, layer)
        wrong = values.copy()
        wrong.reshape(-1)[at] += 1
        found = reduce_program(bundle, inputs, device, report, DifferenceFailure(layer.name, wrong))
        assert found.description.endswith(f"layer {layer.name} on one core")
        assert [x.name for x in found.bundle.metadata.layers] == [layer.name]
        (again,) = found.report.layer_outputs.values()
        if layer.op not in WHOLE:
            assert found.description.startswith("element ")
            assert again.tolist() == values.reshape(-1)[at].reshape(again.shape).tolist()
        else:
            np.testing.assert_array_equal(again, values)


@attrs.frozen(eq=False)
class BurstCountFailure(DifferenceFailure):
    """Failure that occurs only in reduced programs with a given number of bursts."""

    bursts: int

    def occurs_in(self, report):
        return report.layers[-1].bursts == self.bursts


def test_the_tiling_mode_is_kept():
    inputs = {"data": np.load(DIGITS / "images" / "7.npy")}
    one_core = attrs.evolve(nmpsim.default_device(), cores_count=1, scratchpad_bytes=4096)
    compiled = {
        tiling: nmpsim.compile(
            DIGITS / "digits.lir.txt", DIGITS / "digits.npz", device=one_core, tiling=tiling
        )
        for tiling in ("layer", "simple")
    }
    bundle = parse_bundle(compiled["simple"].image)
    runs = {
        tiling: nmpsim.Device(one_core).run(parse_bundle(one.image), inputs, save_layers=True)
        for tiling, one in compiled.items()
    }
    layer = next(
        mine
        for mine, other in zip(runs["simple"].layers, runs["layer"].layers, strict=True)
        if mine.bursts != other.bursts
    )
    values = runs["simple"].layer_outputs[make_layer_key(bundle.metadata.layers[layer.index])]
    failure = BurstCountFailure(layer.name, values, layer.bursts)
    found = reduce_program(bundle, inputs, nmpsim.Device(one_core), runs["simple"], failure)
    assert (found.description, found.tiling) == (
        f"layer {layer.name} on one core, tiling simple",
        "simple",
    )
