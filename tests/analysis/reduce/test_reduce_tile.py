"""The instruction that computes an element gives the same element on its own."""

import attrs
import numpy as np
import pytest

import nmpsim
from nmpsim.analysis.reduce.instruction import find_computing_instruction
from nmpsim.bundle import bundle_from_bytes
from nmpsim.core.run import layer_key

RNG = np.random.default_rng(2)
SILENT = ("maxpool", "transpose", "inserttensor")
"""Operations whose instructions do not tell which elements they compute."""


@pytest.mark.parametrize(
    ("network", "flavour"),
    [
        pytest.param("minimob/i8_asym_b32", "cpumax", marks=pytest.mark.slow),
        ("lenet/i8_asym_b32", "cpuold"),
        ("minires/i16_pow2_b16", "nmp"),
    ],
)
def test_elements_of_recorded_networks(shared, network, flavour):
    stem = shared / "lir" / network / flavour
    compiled = nmpsim.compile(f"{stem}.lir.txt", f"{stem}.npz", f"{stem}.tensors.json")
    bundle, device = bundle_from_bytes(compiled.image), nmpsim.Device()
    with np.load(f"{stem}.npz") as stored:
        inputs = {k.removeprefix("input/"): v for k, v in stored.items() if k.startswith("input/")}
    report = device.run(bundle, inputs, save_layers=True)
    one_core = nmpsim.Device(attrs.evolve(device.config, cores_count=1))
    for layer in bundle.metadata.layers:
        if layer.placement == "host":
            continue
        values = report.layer_outputs[layer_key(layer)]
        at = tuple(int(RNG.integers(size)) for size in values.shape)
        part = find_computing_instruction(bundle, inputs, device.config, "compiled", layer, at)
        assert (part is None) == (layer.op in SILENT), layer.op
        if part is not None:
            again = one_core.run(bundle_from_bytes(part.bundle), part.inputs)
            assert again.trap is None
            assert again.outputs["result"].item() == values[at]
