"""The instruction that computes an element gives the same element on its own."""

import attrs
import numpy as np
import pytest
from corpus import compiled, make_inputs

import nmpsim
from nmpsim.analysis.reduce.instruction import extract_computing_instruction
from nmpsim.bundle import parse_bundle
from nmpsim.core.run import make_layer_key

RNG = np.random.default_rng(2)
SILENT = ("maxpool", "transpose", "inserttensor")
"""Operations whose instructions do not show which elements they compute."""


@pytest.mark.parametrize(
    ("network", "flavour"),
    [
        pytest.param("minimob/i8_asym_b32", "cpumax", marks=pytest.mark.slow),
        ("lenet/i8_asym_b32", "cpuold"),
        ("minires/i16_pow2_b16", "nmp"),
    ],
)
def test_one_instruction_reproduces_its_element(shared, network, flavour):
    text = shared / "lir" / network / f"{flavour}.lir.txt"
    bundle, device, inputs = compiled(text), nmpsim.Device(), make_inputs(text)
    report = device.run(bundle, inputs, save_layers=True)
    one_core = nmpsim.Device(attrs.evolve(device.config, cores_count=1))
    for layer in bundle.metadata.layers:
        if layer.placement == "host":
            continue
        values = report.layer_outputs[make_layer_key(layer)]
        at = tuple(int(RNG.integers(size)) for size in values.shape)
        part = extract_computing_instruction(bundle, inputs, device.config, "compiled", layer, at)
        assert (part is None) == (layer.op in SILENT), layer.op
        if part is not None:
            again = one_core.run(parse_bundle(part.image), part.inputs)
            assert again.trap is None
            assert again.outputs["result"].item() == values[at]
