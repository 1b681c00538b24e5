"""Test the digest of rescale parameters: every number changes it, tilings do not."""

from pathlib import Path

import attrs
import numpy as np
import pytest
from bundle_edits import change_bytes, change_descriptor, descriptors

import nmpsim
from nmpsim.bundle import parse_bundle
from nmpsim.checking import ExpectedArrays, SuiteCase
from nmpsim.checking.baseline import Baseline, make_baseline
from nmpsim.checking.case import check_run
from nmpsim.checking.rescale import list_rescale_words
from nmpsim.checking.run import LoadedProgram
from nmpsim.compiler.numerics import PROFILES
from nmpsim.isa.table import DESCRIPTORS, SCALE_RECORD

DIGITS = Path(__file__).parents[2] / "programs" / "digits"
DEVICE = nmpsim.default_device()
CUTS = [("chain", 32), ("layer", 1), ("layer", 5), ("simple", 32), ("bytes", 8)]
"""Combinations of tiling and number of cores."""


@attrs.frozen(eq=False)
class Network:
    """Compiled network with its inputs and the baseline of its correct run."""

    path: Path
    inputs: dict
    before: Baseline

    def statuses(self, path: Path) -> dict[str, str]:
        """Return the status of each check of a changed copy, and the first failing layer."""
        run = LoadedProgram(nmpsim.load(path), nmpsim.Device(DEVICE)).run(self.inputs)
        result = check_run(SuiteCase(Path()), run, ExpectedArrays(), self.before)
        found = {check.name: check.status for check in result.checks}
        return found | {
            "layer": next((check.culprits[0].index for check in result.failed_checks), None)
        }

    def copy(self, folder: Path) -> Path:
        path = folder / "changed.bin"
        path.write_bytes(self.path.read_bytes())
        return path


def network(text: Path, weights: Path, inputs: dict, folder: Path, **options) -> Network:
    path = folder / "net.bin"
    nmpsim.save(nmpsim.compile(text, weights, device=DEVICE, **options), path)
    run = LoadedProgram(nmpsim.load(path), nmpsim.Device(DEVICE)).run(inputs)
    return Network(path, inputs, make_baseline(run))


def load_recorded(shared: Path, name: str, folder: Path, **options) -> Network:
    """Compile and run a recorded network."""
    text = shared / "lir" / f"{name}.lir.txt"
    weights = shared / "lir" / f"{name}.npz"
    with np.load(weights) as file:
        inputs = {key[6:]: file[key] for key in file.files if key.startswith("input/")}
    return network(text, weights, inputs, folder, **options)


def digits(folder: Path, numerics: str) -> Network:
    inputs = {"data": np.load(DIGITS / "images" / "7.npy")}
    files = (DIGITS / "digits.lir.txt", DIGITS / "digits.npz")
    rescales = numerics == "nmp"
    return network(
        *files, inputs, folder, numerics=numerics, rescale_biases=rescales, tiling="layer"
    )


def wrong(layer: int) -> dict:
    passed = {"cycles": "passed", "saturation": "passed"}
    return {"outputs": "wrong", **passed, "layer": layer}


def change_network(net: Network, folder: Path, word: str, by: int):
    """Yield each layer and the check statuses after a change of one of its descriptor words."""
    bundle = nmpsim.load(net.path)
    for kind in DESCRIPTORS:
        if word not in list_rescale_words(kind):
            continue
        for layer in sorted({words["layer"] for _, words in descriptors(bundle, kind)}):
            path = net.copy(folder)
            change_descriptor(path, kind, layer, word, by)
            yield layer, net.statuses(path)


@pytest.mark.parametrize("numerics", PROFILES)
def test_a_changed_multiplier_of_any_profile_fails(numerics, tmp_path):
    net = digits(tmp_path, numerics)
    layers = []
    for by in (-1, 1):
        for layer, found in change_network(net, tmp_path, "out_mul", by):
            layers.append(layer)
            assert found == wrong(layer)
    assert layers == [1, 3, 5] * 2


@pytest.mark.parametrize(
    ("name", "numerics"),
    [
        ("lenet/i16_pow2_b16/interp", "glow-float"),
        pytest.param("minires/i8_asym_b32/cpu", "glow-int", marks=pytest.mark.slow),
        pytest.param("minimob/i8_asym_b32/cpu", "glow-int", marks=pytest.mark.slow),
    ],
)
def test_a_changed_multiplier_of_any_layer_fails(name, numerics, shared, tmp_path):
    net = load_recorded(shared, name, tmp_path, numerics=numerics, tiling="layer")
    layers = []
    for layer, found in change_network(net, tmp_path, "out_mul", 1):
        layers.append(layer)
        assert (found["outputs"], found["layer"]) == ("wrong", layer)
    device = [one.index for one in nmpsim.load(net.path).metadata.layers if one.macs]
    assert set(device) <= set(layers)


@pytest.mark.parametrize(
    ("word", "by"), [("out_post", -1), ("out_offset", -1), ("clip_high", -1), ("empty_value", 1)]
)
def test_other_changed_rescale_numbers_fail(word, by, tmp_path):
    net = digits(tmp_path, "glow-int")
    found = list(change_network(net, tmp_path, word, by))
    assert len(found) >= 2
    for layer, outcome in found:
        assert (outcome["outputs"], outcome["layer"]) == ("wrong", layer)


def test_a_changed_padding_value_fails(tmp_path):
    net = digits(tmp_path, "glow-int")
    bundle, path = nmpsim.load(net.path), net.copy(tmp_path)
    for address, words in descriptors(bundle, "load"):
        if words["pad_x_before"]:
            at = address + 4 * [word.name for word in DESCRIPTORS["load"]].index("fill")
            change_bytes(path, at, bytes(4))
            assert net.statuses(path) == wrong(words["layer"])
            return
    pytest.fail("no load pads")


def rescale(text: Path, weights: Path, inputs: dict, tiling: str, cores: int) -> tuple[str, ...]:
    config = attrs.evolve(DEVICE, cores_count=cores, scratchpad_bytes=65536)
    image = nmpsim.compile(text, weights, device=config, tiling=tiling).image
    return LoadedProgram(parse_bundle(image), nmpsim.Device(config)).run(inputs).rescale


@pytest.mark.parametrize(
    "name",
    [
        "lenet/i16_pow2_b16/interp",
        pytest.param("minires/i8_asym_b32_channelwise/interp", marks=pytest.mark.slow),
        pytest.param("minimob/i8_asym_b32/cpu", marks=pytest.mark.slow),
    ],
)
def test_rescale_numbers_do_not_depend_on_tiling(name, shared, tmp_path):
    net = load_recorded(shared, name, tmp_path, tiling="layer")
    text = shared / "lir" / f"{name}.lir.txt"
    expected = tuple(layer.rescale for layer in net.before.layers)
    for tiling, cores in CUTS:
        found = rescale(
            text, text.with_name(f"{name.split('/')[-1]}.npz"), net.inputs, tiling, cores
        )
        assert found == expected


def test_a_changed_channel_scale_fails(shared, tmp_path):
    net = load_recorded(shared, "minires/i8_asym_b32_channelwise/interp", tmp_path, tiling="layer")
    bundle = nmpsim.load(net.path)
    mul = 4 * [word.name for word in SCALE_RECORD].index("out_mul")
    tables = {name: at for name, at in bundle.symbols.items() if name.endswith(".scales")}
    layers = {layer.name: layer.index for layer in bundle.metadata.layers}
    assert len(tables) >= 4
    for name, at in tables.items():
        path = net.copy(tmp_path)
        last = at + bundle.symbol_sizes[name] - SCALE_RECORD.nbytes + mul
        value = int.from_bytes(bundle.image[last - bundle.image_base :][:4].tobytes(), "little")
        change_bytes(path, last, (value + 1).to_bytes(4, "little"))
        assert net.statuses(path)["layer"] == layers[name.removesuffix(".scales")]
        assert net.statuses(path)["outputs"] == "wrong"


def test_a_changed_scale_of_the_host_fails(tmp_path):
    net = digits(tmp_path, "glow-int")
    bundle = nmpsim.load(net.path)
    first, *others = bundle.metadata.steps
    (result, *operands) = first.operands
    tensor = attrs.evolve(result.tensor, scale=np.nextafter(np.float32(result.tensor.scale), 1))
    changed = attrs.evolve(first, operands=(attrs.evolve(result, tensor=tensor), *operands))
    metadata = attrs.evolve(bundle.metadata, steps=(changed, *others))
    device = nmpsim.Device(DEVICE)
    before = LoadedProgram(bundle, device).run(net.inputs).rescale
    after = LoadedProgram(attrs.evolve(bundle, metadata=metadata), device).run(net.inputs).rescale
    assert [a != b for a, b in zip(before, after, strict=True)] == [True] + 7 * [False]


def test_every_descriptor_word_has_one_type():
    """A new word of the instruction set must be given its place."""
    geometry = {
        "layer", "groups", "part", "count", "rows", "columns", "inner", "rhs_kind", "element_bytes",
        "in_channels", "out_channels", "channels_count", "channels", "in_h", "in_w", "out_h",
        "out_w", "kernel_h", "kernel_w", "dilation_h", "dilation_w", "pad_top", "pad_left",
        "run_bytes", "count_x", "count_y", "event_origin", "event_stride_y", "event_stride_x",
    }  # fmt: skip
    for kind, record in DESCRIPTORS.items():
        numbers = list_rescale_words(kind)
        for word in record:
            placed = word.address or word.name in geometry
            placed |= word.name.startswith(("pad_", "size_")) or "stride" in word.name
            assert placed != (word.name in numbers), f"{kind}.{word.name}"


def test_rescale_numbers_do_not_depend_on_engine_or_threads(tmp_path):
    net = digits(tmp_path, "glow-int")
    bundle, expected = nmpsim.load(net.path), tuple(one.rescale for one in net.before.layers)
    for options in ({"engine": "reference"}, {"threads": 1}, {"threads": 2}):
        program = LoadedProgram(bundle, nmpsim.Device(DEVICE, **options))
        assert program.run(net.inputs).rescale == expected
