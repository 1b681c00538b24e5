"""Every layer of a recorded network can be cut out, most of them down to one element."""

import numpy as np
import pytest

import nmpsim
from nmpsim.analysis.reduce import Differs, reduce
from nmpsim.bundle import bundle_from_bytes
from nmpsim.core.device import layer_key

RNG = np.random.default_rng(1)
WHOLE = ("softmax", "transpose", "inserttensor")
"""Operations of which no single element is cut out."""


@pytest.mark.parametrize(
    ("network", "flavour"),
    [
        ("minires/i8_asym_b32", "cpumax"),
        ("minimob/i8_asym_b32", "cpu"),
        ("lenet/i16_pow2_b16", "nmpold"),
    ],
)
def test_every_layer(shared, network, flavour):
    stem = shared / "lir" / network / flavour
    compiled = nmpsim.compile(f"{stem}.lir.txt", f"{stem}.npz", f"{stem}.tensors.json")
    bundle, device = bundle_from_bytes(compiled.image), nmpsim.Device()
    with np.load(f"{stem}.npz") as stored:
        inputs = {k.removeprefix("input/"): v for k, v in stored.items() if k.startswith("input/")}
    report = device.run(bundle, inputs, save_layers=True)
    for layer in bundle.metadata.layers:
        values = report.layer_outputs[layer_key(layer)]
        at = RNG.integers(values.size)
        wrong = values.copy()
        wrong.reshape(-1)[at] += 1
        found = reduce(bundle, inputs, device, report, Differs(layer.name, wrong))
        assert found.what.endswith(f"layer {layer.name} on one core")
        assert [x.name for x in found.bundle.metadata.layers] == [layer.name]
        (again,) = found.report.layer_outputs.values()
        if layer.op not in WHOLE:
            assert found.what.startswith("element ")
            assert again.tolist() == values.reshape(-1)[at].reshape(again.shape).tolist()
        # What the first part of a concatenation leaves in the rest of its buffer is undefined.
        elif layer.op != "inserttensor":
            np.testing.assert_array_equal(again, values)
