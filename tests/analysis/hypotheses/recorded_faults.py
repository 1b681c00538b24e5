"""Faults planted in dumps of one layer, and the texts with which identify names each fault.

``python -m tests.analysis.hypotheses.recorded_faults SEED N`` repeats the campaign.
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from nmpsim.analysis.identify import identify_program
from nmpsim.analysis.program import load_program
from tests.identify_campaign.devices import Device, requantize
from tests.identify_campaign.known_devices import KNOWN
from tests.identify_campaign.models import Convolution, draw_layers, write_model

Array = np.ndarray[Any, Any]
Rng = np.random.Generator
Dumps = dict[str, Array]


@attrs.frozen
class RecordedFault:
    """Fault of a layer's dumps or of its program, and the texts that name it."""

    text: str
    """Regular expression of an explanation that names the fault."""
    change_dumps: Callable[[Dumps, Rng], Dumps] = lambda dumps, rng: dumps
    change_layer: Callable[[Convolution, Rng], Convolution] = lambda layer, rng: layer
    """Function that returns the layer of the program from that of the device."""


def _replace(name: str, change: Callable[[Array, Rng], Array]) -> Callable[[Dumps, Rng], Dumps]:
    return lambda dumps, rng: {**dumps, name: np.ascontiguousarray(change(dumps[name], rng))}


def _swap(values: Array, rng: Rng) -> Array:
    order = np.arange(values.shape[1])
    pair = rng.choice(order.size, 2, replace=False)
    order[pair] = order[pair[::-1]]
    return values[:, order]


def _permute(values: Array, rng: Rng) -> Array:
    while True:
        order = rng.permutation(values.shape[1])
        if (order != np.arange(order.size)).any():
            return values[:, order]


def _change_scale(index: int, change: Callable[[Any, Rng], Any]) -> Any:
    def change_layer(layer: Convolution, rng: Rng) -> Convolution:
        scales = list(layer.scales)
        scales[index] = np.float32(change(scales[index], rng))
        return attrs.evolve(layer, scales=tuple(scales))

    return change_layer


def _change_zero(index: int) -> Any:
    def change_layer(layer: Convolution, rng: Rng) -> Convolution:
        zeros = list(layer.zeros)
        zeros[index] += int(rng.choice([-1, 1]))
        return attrs.evolve(layer, zeros=tuple(zeros))

    return change_layer


def _last_place(scale: Any, rng: Rng) -> Any:
    return np.nextafter(scale, np.float32(rng.choice([-np.inf, np.inf])))


def _to_nhwc(values: Array, rng: Rng) -> Array:
    return values.transpose(0, 2, 3, 1).reshape(values.shape)


def _to_nchw(values: Array, rng: Rng) -> Array:
    count, channels, height, width = values.shape
    return values.reshape(count, height, width, channels).transpose(0, 3, 1, 2)


FAULTS: dict[str, RecordedFault] = {
    "input NHWC": RecordedFault("input read as", _replace("t0", _to_nhwc)),
    "result NHWC": RecordedFault("result read as", _replace("t1", _to_nhwc)),
    "input NCHW": RecordedFault("input read as", _replace("t0", _to_nchw)),
    "result NCHW": RecordedFault("result read as", _replace("t1", _to_nchw)),
    "input channels swapped": RecordedFault("input with|input channels", _replace("t0", _swap)),
    "result channels swapped": RecordedFault("result with", _replace("t1", _swap)),
    "input channels permuted": RecordedFault("input with|input chann", _replace("t0", _permute)),
    "result channels permuted": RecordedFault("result with", _replace("t1", _permute)),
    "input unsigned": RecordedFault("input as u", _replace("t0", lambda x, r: x ^ np.int8(-128))),
    "result unsigned": RecordedFault("result as u", _replace("t1", lambda x, r: x ^ np.int8(-128))),
    "zero point of the result": RecordedFault("zero point", change_layer=_change_zero(1)),
    "zero point of the input": RecordedFault("zero point", change_layer=_change_zero(0)),
    "result scale, last place": RecordedFault(
        "scale .*of the result", change_layer=_change_scale(2, _last_place)
    ),
    "input scale, last place": RecordedFault(
        "scale .*of the (input|result)", change_layer=_change_scale(0, _last_place)
    ),
    "result scale, six decimals": RecordedFault(
        "scale .*of the (input|result)", change_layer=_change_scale(2, lambda s, r: float(s) + 1e-6)
    ),
    "result scale, three digits": RecordedFault(
        "scale",
        change_layer=_change_scale(2, lambda s, r: float(f"{float(s):.3g}")),
    ),
    "result scale, factor": RecordedFault(
        "scale of", change_layer=_change_scale(2, lambda s, r: s * np.float32(r.uniform(1.1, 2)))
    ),
    "bias missing": RecordedFault(
        "bias", change_layer=lambda layer, rng: attrs.evolve(layer, bias=0 * layer.bias)
    ),
    "bias ignored": RecordedFault("bias"),
    "one weight": RecordedFault("weight"),
}


def _plant_in_device(name: str, layer: Convolution, rng: Rng) -> Convolution:
    """Return the layer of the device, where the fault is in the device."""
    if name == "bias ignored":
        return attrs.evolve(layer, bias=0 * layer.bias)
    if name == "one weight":
        weights = layer.weights.copy()
        index = tuple(rng.integers(weights.shape))
        weights[index] = -weights[index] if abs(weights[index]) > 30 else 100
        return attrs.evolve(layer, weights=weights)
    return layer


def try_fault(
    name: str, rng: Rng, folder: Path, size: int = 10, devices: Sequence[Device] = KNOWN
) -> tuple[bool, str] | None:
    """Plant a fault and identify the layer; return whether it is named, and the explanation.

    Returns None if the fault changes no result.
    """
    fault, channels = FAULTS[name], int(rng.choice([4, 6, 8]))
    device = devices[rng.integers(len(devices))]
    (layer,) = draw_layers(rng, 1, channels)
    known = fault.change_layer(layer, rng)
    real = _plant_in_device(name, layer, rng)
    write_model(folder / "model.onnx", [known], size)
    x = rng.integers(-128, 128, (2, channels, size, size)).astype(np.int8)

    def run(one: Convolution) -> Array:
        y = requantize(device, one.compute_sums(x), one.bias, one.scales, one.zeros[1])
        return np.ascontiguousarray(y.transpose(0, 3, 1, 2))

    right = {"t0": x, "t1": run(real)}
    dumps = fault.change_dumps(right, rng)
    if all(np.array_equal(dumps[key], right[key]) for key in right) and np.array_equal(
        run(known), right["t1"]
    ):
        return None
    np.savez(folder / "dumps.npz", **dumps)
    found = identify_program(load_program(folder / "model.onnx"), [folder / "dumps.npz"])
    (one,) = found.layers
    text = one.fault.text if one.fault else "explained" if one.found.rules else "unknown"
    return bool(re.search(fault.text, text)), f"{device.name}: {text}"


def main() -> None:
    """Run a campaign and print how many faults of each kind are named."""
    first, count = int(sys.argv[1]), int(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        for name in sys.argv[3:] or FAULTS:
            start, found = time.process_time(), []
            for seed in range(first, first + 10 * count):
                one = try_fault(name, np.random.default_rng([seed, *name.encode()]), Path(folder))
                found += [(seed, *one)] if one is not None else []
                if len(found) == count:
                    break
            seconds = (time.process_time() - start) / max(len(found), 1)
            named = sum(is_named for _, is_named, _ in found)
            print(f"{named:4} of {len(found):4}  {name}  ({seconds:.2f} s each)", flush=True)
            for seed, is_named, text in found:
                if not is_named:
                    print(f"      {seed}: {text}", flush=True)


if __name__ == "__main__":
    main()
