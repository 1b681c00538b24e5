"""Every layer of a recorded network can be cut out, and does the same on its own."""

import numpy as np
import pytest

import nmpsim
from nmpsim.analysis.reduce import Differs, reduce
from nmpsim.bundle import bundle_from_bytes
from nmpsim.core.device import layer_key


@pytest.mark.parametrize(
    ("network", "flavour"),
    [
        ("minires/i8_pow2_b8", "cpumax"),
        ("minimob/i8_asym_b32", "cpu"),
        ("lenet/i16_pow2_b16", "nmp"),
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
        wrong = values.copy()
        wrong.reshape(-1)[0] += 1
        found = reduce(bundle, inputs, device, report, Differs(layer.name, wrong))
        assert found.what == f"layer {layer.name} on one core"
        assert [x.name for x in found.bundle.metadata.layers] == [layer.name]
        # What the first part of a concatenation leaves in the rest of its buffer is undefined.
        if layer.op != "inserttensor":
            (again,) = found.report.layer_outputs.values()
            np.testing.assert_array_equal(again, values)
