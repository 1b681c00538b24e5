"""The committed files of programs/digits hang together. None of this needs scikit-learn."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

DIGITS = Path(__file__).parents[2] / "programs" / "digits"
LIR = (DIGITS / "digits.lir.txt").read_text()
SIDECAR = json.loads((DIGITS / "digits.tensors.json").read_text())
DTYPES = {"i8": np.int8, "i32": np.int32}

WEIGHT = re.compile(r"^  %(\w+) = WeightVar (\w+)\S* ?\S*<([\dx ]+)> const // size: (\d+)", re.M)
INSTRUCTION = re.compile(r"^  (\d+) %(\w+) = (\w+) (.*)$", re.M)
TYPE = re.compile(r"(\w+)\[S:(\d+\.\d{9}) O:(-?\d+)\]\[[^]]*\]<([\dx ]+)>")


def load_script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"digits_{name}", DIGITS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their own module up
    spec.loader.exec_module(module)
    return module


def parse_shape(text: str) -> tuple[int, ...]:
    return tuple(int(dim) for dim in text.split(" x "))


def readme_count(line_start: str) -> tuple[int, int]:
    readme = (DIGITS / "README.md").read_text()
    found = re.search(rf"^\| {line_start} \| (\d+)/(\d+) = (\d+\.\d\d) % \|$", readme, re.M)
    right, total = int(found[1]), int(found[2])
    assert found[3] == f"{100 * right / total:.2f}"
    return right, total


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    return load_script("reference")


@pytest.fixture
def quantize(monkeypatch) -> ModuleType:
    for helper in ("dataset", "float_net", "lir_text"):  # as if run from its own folder
        monkeypatch.setitem(sys.modules, helper, load_script(helper))
    return load_script("quantize")


@pytest.fixture(scope="module")
def network(reference):
    return reference.load_network(DIGITS)


@pytest.fixture(scope="module")
def testset() -> tuple[np.ndarray, np.ndarray]:
    with np.load(DIGITS / "testset.npz") as archive:
        return archive["x"], archive["labels"]


@pytest.fixture(scope="module")
def activations(network, testset):
    return network.run(testset[0])


def test_every_constant_of_the_lir_is_in_the_npz():
    declared = {name: (elem, parse_shape(dims), int(size)) for name, elem, dims, size in
                WEIGHT.findall(LIR)}  # fmt: skip
    with np.load(DIGITS / "digits.npz") as archive:
        stored = dict(archive)
    assert list(stored) == list(declared)
    for name, (elem, shape, size) in declared.items():
        assert (stored[name].dtype, stored[name].shape) == (DTYPES[elem], shape)
        assert stored[name].nbytes == size


def test_declared_size_is_the_sum_of_the_weights():
    declaration = LIR[: LIR.index("code {")]
    sizes = [int(size) for size in re.findall(r"// size: (\d+)", declaration)]
    assert f"\n\n  ; size = {sum(sizes)} bytes\n" in declaration


def test_sidecar_digests_match_the_constants():
    with np.load(DIGITS / "digits.npz") as archive:
        for name, constant in archive.items():
            digest = hashlib.sha256(constant.tobytes()).hexdigest()[:16]
            assert SIDECAR[f"const/{name}"]["sha256"] == digest


def lir_types() -> dict[str, tuple[str, str, str, str]]:
    """Return (elem, scale, offset, dims) as printed, by the value's name."""
    types = {}
    for line in LIR.splitlines():
        found = TYPE.search(line)
        if found:
            types[line.split()[0 if line.startswith("  %") else 1].lstrip("%")] = found.groups()
    return types


def test_sidecar_prints_as_the_types_of_the_lir():
    types = lir_types()
    quantized = {key: entry for key, entry in SIDECAR.items() if "scale" in entry}
    assert len(quantized) == 6 + 6  # constants and Int8 activations
    for key, entry in quantized.items():
        elem, scale, offset, dims = types[re.split("[:/]", key)[-1]]
        assert f"{entry['scale']:.9f}" == scale
        assert (entry["elem"], entry["offset"]) == (elem, int(offset))
        assert tuple(entry["shape"]) == parse_shape(dims)


def test_sidecar_scales_are_exact_float32():
    for entry in SIDECAR.values():
        if "scale" in entry:
            assert float.fromhex(entry["scale_hex"]) == entry["scale"]
            assert float(np.float32(entry["scale"])) == entry["scale"]


def test_bias_scales_are_the_scales_of_the_products():
    data = "act/0001:conv1__6_quantize:conv1__6_quantize_res"
    pools = ["act/0007:pool1__2:pool1__1_res", "act/0013:pool2__2:pool2__1_res"]
    for layer, source in zip(("conv1", "conv2", "fc"), (data, *pools), strict=True):
        source_scale = np.float32(SIDECAR[source]["scale"])
        weight_scale = np.float32(SIDECAR[f"const/{layer}_weights__1"]["scale"])
        assert np.float32(SIDECAR[f"const/{layer}_bias"]["scale"]) == source_scale * weight_scale


def test_pools_keep_the_type_of_their_input():
    types = lir_types()
    for pool in (1, 2):
        assert types[f"pool{pool}__1_res"][:3] == types[f"conv{pool}__2_res"][:3]


def test_instructions_are_numbered_and_users_are_true():
    instructions = INSTRUCTION.findall(LIR)
    assert [int(number) for number, *_ in instructions] == list(range(len(instructions)))
    uses: dict[str, set[str]] = {}
    for number, _, _, rest in instructions:
        for access, name in re.findall(r"@(in|out) %(\w+)", rest):
            uses.setdefault(name, set()).add(f"@{access} {number}")
    listed = re.findall(r"^  (?:\d+ )?%(\w+) = .* // Users: (.*)$", LIR, re.M)
    assert {name: set(users.split(", ")) for name, users in listed} == uses


def test_sidecar_names_each_computing_instruction():
    passive = {"allocactivation", "deallocactivation", "tensorview"}
    expected = [
        f"act/{int(number):04d}:{name}:{rest.split(',')[0].removeprefix('@out %')}"
        for number, name, opcode, rest in INSTRUCTION.findall(LIR)
        if opcode not in passive
    ]
    assert [key for key in SIDECAR if key.startswith("act/")] == expected


def test_lir_text_and_sidecar_are_what_the_float_weights_quantize_to(quantize):
    """Quantize again, with the ranges taken back from the sidecar instead of the training set."""
    by_name = {key.split(":")[-1]: entry for key, entry in SIDECAR.items()}
    values = {
        "data": "conv1__6_quantize_res",
        "conv1": "conv1__2_res",
        "conv2": "conv2__2_res",
        "fc": "fc__1_res",
    }
    params = {
        name: quantize.QuantParams(np.float32(by_name[value]["scale"]), by_name[value]["offset"])
        for name, value in values.items()
    }
    with np.load(DIGITS / "float_weights.npz") as archive:
        program, constants = quantize.quantize_network(dict(archive), params)
    assert program.text() == LIR
    assert program.sidecar(constants) == SIDECAR
    with np.load(DIGITS / "digits.npz") as archive:
        for name, constant in archive.items():
            np.testing.assert_array_equal(constants[name], constant)


# (elem, smallest, largest, scale, offset), recorded from Glow's chooseQuantizationParams.
GLOW_PARAMS = [
    ("i8", -0.000282361259451136, 445.99139404296875, 1.7489869594573975, -128),
    ("i8", -1.4545130729675293, 1.4545130729675293, 0.011407945305109024, 0),
    ("i8", -761.9994506835938, 0.036119282245635986, 2.988374710083008, 127),
    ("i8", 1.0, 1.0, 0.003921568859368563, -128),
    ("i8", -0.008083253167569637, -8.083253305812832e-06, 3.1699033570475876e-05, 127),
    ("i32", -0.4339692294597626, 0.4339692294597626, 8.083306801687229e-10, 0),
    ("i32", -0.049227308481931686, 0.00012841924035456032, 4.5966102452110746e-11, 534077130),
]


@pytest.mark.parametrize(("elem", "smallest", "largest", "scale", "offset"), GLOW_PARAMS)
def test_parameters_are_the_ones_glow_chooses(quantize, elem, smallest, largest, scale, offset):
    params = quantize.choose_params(np.float32(smallest), np.float32(largest), elem)
    assert (float(params.scale), params.offset) == (scale, offset)


def test_bias_keeps_its_own_scale_where_the_products_are_too_fine(quantize):
    bias, fine = np.array([-1.0, 2.0], np.float32), np.float32(1e-8)
    assert quantize.bias_params(bias, fine, fine).scale == quantize.params_of(bias, "i32").scale
    assert quantize.bias_params(0 * bias, fine, fine).scale == fine * fine


def test_reference_fills_each_activation_of_the_sidecar(activations):
    expected = [key for key in SIDECAR if key.startswith(("act/", "output/"))]
    assert list(activations) == expected
    for key, values in activations.items():
        assert values.shape[1:] == tuple(SIDECAR[key]["shape"][1:])
        if SIDECAR[key]["elem"] == "i8":
            assert values.min() >= -128
            assert values.max() <= 127


def test_one_image_gives_what_it_gives_in_a_batch(network, testset, activations):
    for key, values in network.run(testset[0][:1]).items():
        np.testing.assert_allclose(values, activations[key][:1], rtol=1e-6)


def test_dequantized_scores_are_near_the_float_network(testset, activations):
    float_net = load_script("float_net")
    with np.load(DIGITS / "float_weights.npz") as archive:
        weights = dict(archive)
    scores = float_net.forward(weights, float_net.to_nhwc(testset[0]))["fc"]
    key = "act/0020:fc__1_dequantize:fc__1_dequantize_res"
    noise = np.mean((activations[key] - scores) ** 2)
    assert 10 * np.log10(np.mean(scores**2) / noise) > 25  # dB


def test_reference_accuracy_is_the_one_in_the_readme(reference, network):
    right = reference.count_right(network, DIGITS)
    assert right == readme_count("quantized, `reference.py`")


def test_float_accuracy_is_the_one_in_the_readme(testset):
    float_net = load_script("float_net")
    x, labels = testset
    with np.load(DIGITS / "float_weights.npz") as archive:
        right = int(np.sum(float_net.predict(dict(archive), x) == labels))
    assert (right, len(x)) == readme_count("float32")
    assert right / len(x) >= 0.975


def test_test_set_has_as_many_of_each_digit(testset):
    x, labels = testset
    assert (x.dtype, x.shape, labels.dtype) == (np.float32, (450, 1, 8, 8), np.int64)
    assert (x.min(), x.max()) == (0, 16)
    assert np.bincount(labels).tolist() == [45] * 10


@pytest.mark.parametrize("digit", range(10))
def test_image_is_classified_as_its_name(digit, network, testset):
    image = np.load(DIGITS / "images" / f"{digit}.npy")
    assert (image.dtype, image.shape) == (np.float32, (1, 1, 8, 8))
    x, labels = testset
    assert labels[np.flatnonzero((x == image).all(axis=(1, 2, 3)))[0]] == digit
    assert network.predict(image).tolist() == [digit]


@pytest.mark.parametrize(
    ("factor", "pre", "post", "multiplier"),
    [(1.0, 0, 0, 1), (4.0, 0, 0, 4), (0.25, 0, 2, 1)],
)
def test_scale_integer_of_a_power_of_two(reference, factor, pre, post, multiplier):
    expected = reference.ScaleInteger(pre, post, multiplier)
    assert reference.scale_integer(np.float32(factor)) == expected


def test_scaling_rounds_half_up(reference):
    quarter = reference.scale_integer(np.float32(0.25))
    assert quarter(np.array([-6, -2, 2, 6])).tolist() == [-1, 0, 1, 2]


def test_files_use_lf_and_are_small():
    files = [path for path in DIGITS.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert sum(path.stat().st_size for path in files) < 300_000
    for path in files:
        if path.suffix in {".py", ".md", ".txt", ".json"}:
            assert b"\r" not in path.read_bytes(), path
