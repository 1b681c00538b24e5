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
from nmpsim.analysis.identify import (
    Probe,
    has_equal_rules,
    identify_program,
    make_formulas_file,
    make_probe,
)
from nmpsim.analysis.program import load_program
from nmpsim.bundle import parse_bundle
from tests.identify_campaign.devices import Device, draw_device, requantize
from tests.identify_campaign.known_devices import KNOWN
from tests.identify_campaign.models import Convolution, draw_layers, write_model

FRESH = 4
"""Most results of 65,536 fresh ones in which a named rule may differ from the device."""


@attrs.define
class Outcome:
    """Result of one device."""

    device: Device
    explained: bool
    seconds: float
    rules: int = 0
    wrong: int = 0
    later: int = 0
    """Fresh results in which the rule named after the probes differs."""
    fresh: int = 0
    name: str = ""
    probes: int = 0
    """Probes that the device ran."""
    remaining: int = 1
    """Rules that explain the dumps and all probes."""
    state: str = "one rule"
    """"one rule", "equal" if the remaining rules are proved equal, else "open" or a failure."""

    @property
    def is_named(self) -> bool:
        """Whether the named rule computes what the device computes."""
        return self.explained and self.wrong * 65536 <= FRESH * self.fresh


def run_device(device: Device, layers: list[Convolution], x: Any) -> dict[str, Any]:
    """Return the tensors that a device records for an input."""
    arrays = {"t0": x}
    for index, one in enumerate(layers):
        sums = one.compute_sums(arrays[f"t{index}"])
        y = requantize(device, sums, one.bias, one.scales, one.zeros[1])
        arrays[f"t{index + 1}"] = np.ascontiguousarray(y.transpose(0, 3, 1, 2))
    return arrays


def run_case(device: Device, rng: np.random.Generator, folder: Path, count: int) -> Outcome:
    """Identify a device from the dumps of a random model, and compare fresh results."""
    size, channels = 16, int(rng.integers(4, 17))
    layers = draw_layers(rng, count, channels)
    model = folder / "model.onnx"
    write_model(model, layers, size)
    x = rng.integers(-128, 128, (2, channels, size, size)).astype(np.int8)
    dumps = [folder / "dumps.npz"]
    np.savez(dumps[0], **run_device(device, layers, x))
    program = load_program(model)
    start = time.process_time()
    found = identify_program(program, dumps)
    seconds = (time.process_time() - start) / len(layers)
    if not found.is_explained:
        return Outcome(device, False, seconds)
    rules = found.classes[0].rules
    one = Outcome(device, True, seconds, len(rules), name=rules[0].name)
    text = make_formulas_file(found).text
    one.wrong, one.fresh = compare_fresh(device, layers[0], text, rng, folder, size)
    while len(found.classes[0].rules) > 1:
        (known,) = found.classes
        probe = make_probe(found, known) or make_probe(found, known, weights=True)
        if probe is None:
            one.state = "equal" if has_equal_rules(known) else "open"
            break
        one.probes += 1
        dumps.append(folder / f"probe{one.probes}.npz")
        names = [layer.layer.name for layer in found.layers]
        index = names.index(probe.layer.name)
        results = record_probe(device, layers, probe, dumps[-1])[f"t{index + 1}"]
        is_predicted = any(
            np.array_equal(results.transpose(0, 2, 3, 1), values) for values in probe.results
        )
        found = identify_program(program, dumps)
        if not (is_predicted and found.is_explained):
            one.state = f"failed: probe of layer {index}"
            break
        if len(found.classes[0].rules) == len(known.rules):
            one.state = f"useless: probe of layer {index}"
            break
    one.remaining = len(found.classes[0].rules) if found.classes else 0
    one.later = one.wrong
    if one.wrong and one.probes and found.is_explained:
        text = make_formulas_file(found).text
        one.later, _ = compare_fresh(device, layers[0], text, rng, folder, size)
    return one


def record_probe(
    device: Device, layers: list[Convolution], probe: Probe, path: Path
) -> dict[str, Any]:
    """Write and return what a device records for a probe."""
    changed, arrays = list(layers), probe.make_arrays()
    for name, values in probe.constants.items():
        index = int(name[1:])
        own = {"weights": values.transpose(0, 3, 1, 2)} if name[0] == "w" else {"bias": values}
        changed[index] = attrs.evolve(changed[index], **own)
    recorded = run_device(device, changed, arrays["t0"])
    np.savez(path, **(arrays | recorded))
    return recorded


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
            if not one.is_named or one.seconds > 0.5 or one.state not in ("one rule", "equal"):
                print(f"{one}", flush=True)
    explained = [one for one in outcomes if one.explained]
    named = [one for one in explained if one.is_named]
    later = [one for one in explained if one.later * 65536 <= FRESH * one.fresh]
    seconds = [one.seconds for one in outcomes]
    print(f"seed {options.seed}: {len(named)} of {len(outcomes)} rules named")
    print(f"after the probes: {len(later)} named")
    print(
        f"false names: {len(explained) - len(named)}; unexplained: {len(outcomes) - len(explained)}"
    )
    print(f"CPU seconds per layer: median {np.median(seconds):.2f}, most {max(seconds):.2f}")
    sizes = [one.rules for one in explained]
    print(f"rules of a class: median {np.median(sizes):.0f}, most {max(sizes)}")
    opened = [one for one in explained if one.rules > 1]
    split = sum(one.probes > 0 for one in opened)
    closed = sum(one.state in ("one rule", "equal") for one in opened)
    print(f"classes of several rules: {len(opened)}, divided by probes: {split}")
    print(f"after the probes: one rule, or rules that are proved equal: {closed}")
    print(f"probes of a class: at most {max(one.probes for one in explained)}")
    return 0 if len(named) == len(outcomes) and closed == len(opened) else 1


if __name__ == "__main__":
    sys.exit(main())
