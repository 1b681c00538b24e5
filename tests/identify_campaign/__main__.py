"""``python -m tests.identify_campaign``: identify random devices and report what was named."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np

import nmpsim
from nmpsim.analysis.identify import (
    Identification,
    Probe,
    has_equal_rules,
    identify_program,
    make_formulas_file,
    make_probe,
)
from nmpsim.analysis.identify.classes import group_rules
from nmpsim.analysis.identify.search import RequantizationRule, RuleEvaluator, find_rules
from nmpsim.analysis.program import load_program
from nmpsim.bundle import parse_bundle
from tests.identify_campaign.devices import Device, draw_device, requantize
from tests.identify_campaign.known_devices import KNOWN
from tests.identify_campaign.models import Convolution, draw_layers, write_model

FRESH_ITEMS = 8
"""Inputs of the first layer whose results a rule must explain besides the dumps."""


@attrs.define
class Outcome:
    """Result of one device."""

    device: Device
    explained: bool
    seconds: float
    rules: int = 0
    name: str = ""
    """The simplest rule."""
    exact: bool = False
    """Whether the class contains a rule that computes all fresh results, compiled too."""
    wrong: int = 0
    """Fresh results in which the simplest rule differs from the device."""
    fresh: int = 0
    probes: int = 0
    """Probes that the device ran."""
    remaining: int = 1
    """Rules that explain the dumps and all probes."""
    later: int = 0
    """Fresh results in which the simplest of these rules differs."""
    state: str = "one rule"
    """"one rule", "equal" if the remaining rules are proved equal, else "open" or a failure."""

    @property
    def is_closed(self) -> bool:
        """Whether one rule remains, or rules that are proved equal."""
        return self.explained and self.state in ("one rule", "equal")

    @property
    def is_false(self) -> bool:
        """Whether the answer is not true: a class without the rule, or a wrong rule as the rule."""
        is_wrong_rule = bool(self.wrong and self.rules == 1) or (self.is_closed and self.later > 0)
        return self.explained and (not self.exact or is_wrong_rule)


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
    one = Outcome(device, True, seconds, len(found.classes[0].rules))
    one.name = found.classes[0].rule.name
    x = rng.integers(-128, 128, (FRESH_ITEMS, *x.shape[1:])).astype(np.int8)
    y = run_device(device, layers[:1], x)["t1"]
    right, one.wrong, one.fresh = compare_fresh(found, x, y)
    one.exact = bool(right) and run_rule(found, right, layers[0], x, y, folder)
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
    if one.explained and found.classes:
        right, one.later, _ = compare_fresh(found, x, y)
        one.exact &= bool(right)
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
    found: Identification, x: Any, y: Any
) -> tuple[tuple[RequantizationRule, ...], int, int]:
    """Compare the rules of the first layer with its results ``y`` of fresh inputs ``x``.

    Returns the rules that explain all of them, and how many results of how many differ from those
    of the simplest rule.
    """
    known = found.classes[0]
    inputs, results = (np.ascontiguousarray(one.transpose(0, 2, 3, 1))[:, None] for one in (x, y))
    fresh = attrs.evolve(found.layers[0].layer, inputs=inputs, results=results)
    evaluator = RuleEvaluator(fresh)
    wrong = sum(
        int((evaluator.predict([known.rule], one)[0] != one.results).sum())
        for one in fresh.iterate_samples()
    )
    return find_rules(fresh, group_rules(known.rules)).rules, wrong, y.size


def run_rule(
    found: Identification, rules: Sequence[RequantizationRule], layer: Convolution, x: Any, y: Any,
    folder: Path,
) -> bool:  # fmt: skip
    """Return whether the first layer, compiled with a rule, computes ``y`` for an item of ``x``."""
    known = attrs.evolve(found.classes[0], rules=tuple(rules))
    text = make_formulas_file(attrs.evolve(found, classes=(known,))).text
    write_model(folder / "one.onnx", [layer], x.shape[-1])
    (folder / "found.toml").write_text(text)
    compiled = nmpsim.compile(folder / "one.onnx", numerics=str(folder / "found.toml"))
    report = nmpsim.Device(engine="reference").run(parse_bundle(compiled.image), {"t0": x[:1]})
    assert report.trap is None, report.trap
    (output,) = report.outputs.values()
    return np.array_equal(output.reshape(y[:1].shape), y[:1])


def main() -> int:
    """Run the campaign and print its figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.identify_campaign")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--devices", type=int, default=60)
    parser.add_argument("--only", type=int, help="number of the only device")
    parser.add_argument("--layers", type=int, default=3)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    devices = [*KNOWN, *(draw_device(rng) for _ in range(options.devices))][: options.devices]
    outcomes = []
    with tempfile.TemporaryDirectory() as folder:
        for index, device in enumerate(devices):
            if options.only in (None, index):
                own = np.random.default_rng([options.seed, index])
                one = run_case(device, own, Path(folder), options.layers)
                outcomes.append(one)
                if one.is_false or not one.is_closed or one.seconds > 0.5:
                    print(f"{index}: {one}", flush=True)
    explained = [one for one in outcomes if one.explained]
    exact = [one for one in explained if one.exact]
    print(f"seed {options.seed}: the class of {len(exact)} of {len(outcomes)} devices is right")
    print(f"unexplained: {len(outcomes) - len(explained)}")
    print(f"false: {sum(one.is_false for one in outcomes)}")
    seconds = [one.seconds for one in outcomes]
    print(f"CPU seconds per layer: median {np.median(seconds):.2f}, most {max(seconds):.2f}")
    sizes = [one.rules for one in explained]
    print(f"rules of a class: median {np.median(sizes):.0f}, most {max(sizes)}")
    opened = [one for one in explained if one.rules > 1]
    closed = [one for one in opened if one.is_closed]
    wrong = sum(one.wrong > 0 for one in opened)
    print(f"open classes: {len(opened)}; the simplest rule of {wrong} differs in fresh results")
    print(f"after the probes: one rule, or rules that are proved equal: {len(closed)}")
    print(f"probes of a class: at most {max(one.probes for one in explained)}")
    is_right = len(exact) == len(outcomes) and not any(one.is_false for one in outcomes)
    return 0 if is_right and len(closed) == len(opened) else 1


if __name__ == "__main__":
    sys.exit(main())
