"""``python -m tests.identify_campaign``: identify random devices and report what was named."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import attrs
import numpy as np

import nmpsim
from nmpsim.analysis.identify import identify_program, make_formulas_file, make_probe
from nmpsim.analysis.program import load_program
from nmpsim.bundle import parse_bundle
from tests.identify_campaign.devices import KNOWN, Device, draw_device, requantize
from tests.identify_campaign.models import draw_layers, write_model

FRESH = 4
"""Most results of 65,536 fresh ones in which a named rule may differ from the device."""


@attrs.define
class Outcome:
    """Result of one device."""

    device: Device
    explained: bool
    rules: int
    wrong: int
    fresh: int
    seconds: float
    name: str = ""
    groups: int = 1
    """Groups into which the probe divides the rules."""
    is_kept: bool = True
    """Whether rules explain what the device computes from the probe."""


def run_case(device: Device, rng: np.random.Generator, folder: Path, count: int) -> Outcome:
    """Identify a device from the dumps of a random model, and compare fresh results."""
    size, channels = 16, int(rng.integers(4, 17))
    layers = draw_layers(rng, count, channels)
    model = folder / "model.onnx"
    write_model(model, layers, size)
    arrays = {"t0": rng.integers(-128, 128, (2, channels, size, size)).astype(np.int8)}
    for index, one in enumerate(layers):
        sums = one.compute_sums(arrays[f"t{index}"])
        y = requantize(device, sums, one.bias, one.scales, one.zeros[1])
        arrays[f"t{index + 1}"] = np.ascontiguousarray(y.transpose(0, 3, 1, 2))
    np.savez(folder / "dumps.npz", **arrays)
    program = load_program(model)
    start = time.process_time()
    found = identify_program(program, [folder / "dumps.npz"])
    seconds = (time.process_time() - start) / len(layers)
    if not found.is_explained:
        return Outcome(device, False, 0, 0, 0, seconds)
    wrong, fresh = compare_fresh(device, layers[0], make_formulas_file(found), rng, folder, size)
    rules = len(found.classes[0].rules)
    one = Outcome(device, True, rules, wrong, fresh, seconds, found.classes[0].rule.name)
    probe = make_probe(program, found.classes[0])
    if probe is not None and probe.name == "t0":
        first = layers[0]
        sums = first.compute_sums(probe.inputs)
        y = requantize(device, sums, first.bias, first.scales, first.zeros[1])
        one.groups = len(probe.groups)
        one.is_kept = any(np.array_equal(y, expected) for expected in probe.results)
    return one


def compare_fresh(
    device: Device, layer: Any, text: str, rng: np.random.Generator, folder: Path, size: int
) -> tuple[int, int]:
    """Compile a layer with the named rule; return how many fresh results differ, of how many."""
    channels = len(layer.bias)
    write_model(folder / "one.onnx", [layer], size)
    (folder / "found.toml").write_text(text)
    compiled = nmpsim.compile(folder / "one.onnx", numerics=str(folder / "found.toml"))
    bundle = parse_bundle(compiled.image)
    x = rng.integers(-128, 128, (1, channels, size, size)).astype(np.int8)
    report = nmpsim.Device(engine="reference").run(bundle, {"t0": x})
    expected = requantize(device, layer.compute_sums(x), layer.bias, layer.scales, layer.zeros[1])
    assert report.trap is None, report.trap
    (output,) = report.outputs.values()
    result = output.reshape(expected.transpose(0, 3, 1, 2).shape)
    return int((result != expected.transpose(0, 3, 1, 2)).sum()), result.size


def main() -> int:
    """Run the campaign and print its figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.identify_campaign")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--devices", type=int, default=60)
    parser.add_argument("--layers", type=int, default=3)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    devices = [*KNOWN, *(draw_device(rng) for _ in range(options.devices))][: options.devices]
    outcomes = []
    with tempfile.TemporaryDirectory() as folder:
        for device in devices:
            one = run_case(device, rng, Path(folder), options.layers)
            outcomes.append(one)
            is_named = one.explained and one.wrong * 65536 <= FRESH * one.fresh
            if not is_named or one.seconds > 0.5:
                print(f"{one}", flush=True)
    explained = [one for one in outcomes if one.explained]
    named = [one for one in explained if one.wrong * 65536 <= FRESH * one.fresh]
    seconds = [one.seconds for one in outcomes]
    print(f"seed {options.seed}: {len(named)} of {len(outcomes)} rules named")
    print(
        f"false names: {len(explained) - len(named)}; unexplained: {len(outcomes) - len(explained)}"
    )
    print(f"CPU seconds per layer: median {np.median(seconds):.2f}, most {max(seconds):.2f}")
    sizes = [one.rules for one in explained]
    print(f"rules of a class: median {np.median(sizes):.0f}, most {max(sizes)}")
    split = sum(one.groups > 1 for one in explained)
    kept = sum(one.is_kept for one in explained)
    print(f"probes that divide the class: {split} of {sum(size > 1 for size in sizes)}")
    print(f"devices whose results of the probe are those of a rule: {kept} of {len(explained)}")
    return 0 if len(named) == len(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
