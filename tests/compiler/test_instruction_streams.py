"""Test waits and stores of compiled programs, and the checker itself."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
from corpus import compiled
from instruction_streams import Job, check_streams, core_events
from lir_draft import Draft, int8
from recorded_programs import RESNET50, Recorded, Recording, programs, with_recipe
from small_programs import SMALL, compile_draft, convolve, image, out_kind
from tiers import each_value, program_parts

from nmpsim.bundle import Bundle, parse_bundle
from nmpsim.bundle.layout import DESCRIPTORS
from nmpsim.compiler.driver import compile_module
from nmpsim.config import DeviceConfig, default_device
from nmpsim.isa.codec import decode, encode, get_word_indices
from nmpsim.isa.table import Unit
from nmpsim.lir.constants import attach_arrays
from nmpsim.lir.parser import parse_file
from nmpsim.lir.scales import read_scales_file

SHARED = [name for name in programs(r"lir(_real)?/") if "resnet50" not in name]
TINY = attrs.evolve(default_device(), cores_count=3, scratchpad_bytes=6144)
DEVICES = (
    TINY,
    attrs.evolve(default_device(), cores_count=7, scratchpad_bytes=32768),
    default_device(),
)


CASES = [(name, number) for name in SHARED for number in range(len(DEVICES))]


@pytest.mark.parametrize(
    ("name", "number"), each_value(CASES, lambda case: (*program_parts(case[0]), case[1]))
)
def test_streams_of_recorded_programs_are_correct(name: str, number: int) -> None:
    config = DEVICES[number]
    bundle = compiled(Recorded(name).text, device=config, fuse=number != 1)
    jobs = check_streams(bundle, config)
    device_layers = sum(layer.placement == "device" for layer in bundle.metadata.layers)
    assert jobs >= 2 * device_layers


@pytest.mark.slow
@pytest.mark.parametrize("name", RESNET50)
def test_streams_of_the_largest_network_are_correct(name: str) -> None:
    recording = Recording(Recorded(name))
    text, scales = recording.program.text, recording.program.beside("tensors.json")
    constants = with_recipe(recording)
    module, _ = attach_arrays(parse_file(text), constants, read_scales_file(scales))
    config = default_device()
    bundle = parse_bundle(compile_module(module, config, tiling="layer"))
    assert check_streams(bundle, config) > 15_000


def test_the_shared_folder_has_programs(shared: Path) -> None:
    assert len(SHARED) == 74
    assert len(RESNET50) == 2


# The checker has teeth


def compile_tiled() -> tuple[Bundle, DeviceConfig]:
    """Compile a convolution, an addition, a transpose and a ReLU into many tiles per core."""
    config = attrs.evolve(SMALL, cores_count=2, scratchpad_bytes=4096)
    draft = Draft()
    source = image(draft, channels=40)
    result = convolve(draft, source, draft.buffer(out_kind(source, channels=40)))
    added = draft.emit("elementadd", draft.buffer(result.type), result, result)
    turned = draft.buffer(int8((40, 5, 6, 1), 0.1, -4))
    draft.emit("transpose", turned, added, Shuffle=(3, 2, 1, 0))
    draft.emit("relu", draft.output(turned.type), turned)
    return compile_draft(draft, config, fuse=False), config


def find_instructions(bundle: Bundle, mnemonic: str) -> list[int]:
    """Return the offsets in the image of all instructions with this mnemonic."""
    found = []
    for begin, end in bundle.text:
        for address in range(begin, end, 4):
            start = address - bundle.image_base
            one = decode(int.from_bytes(bundle.image[start : start + 4].tobytes(), "little"))
            if one is not None and one.instruction.mnemonic == mnemonic:
                found.append(start)
    return found


def patch(bundle: Bundle, start: int, word: int) -> None:
    bundle.image[start : start + 4] = list(word.to_bytes(4, "little"))


def test_a_correct_program_passes() -> None:
    bundle, config = compile_tiled()
    assert check_streams(bundle, config) > 100


def test_most_waits_matter() -> None:
    """Without one wait the program is unsafe, but for waits that have nothing to wait for."""
    bundle, config = compile_tiled()
    nop = encode("addi", {"rd": 0, "rs1": 0, "imm": 0})
    caught = 0
    waits = find_instructions(bundle, "nmp.wait")[::4]
    for start in waits:
        before = int.from_bytes(bundle.image[start : start + 4].tobytes(), "little")
        patch(bundle, start, nop)
        try:
            check_streams(bundle, config)
        except AssertionError:
            caught += 1
        patch(bundle, start, before)
    check_streams(bundle, config)
    assert caught > len(waits) / 3


@pytest.mark.parametrize("unit", list(Unit))
def test_a_missing_wait_for_a_unit_is_found(unit: Unit) -> None:
    bundle, config = compile_tiled()
    nop = encode("addi", {"rd": 0, "rs1": 0, "imm": 0})
    for start in find_instructions(bundle, "nmp.wait"):
        one = decode(int.from_bytes(bundle.image[start : start + 4].tobytes(), "little"))
        if one is not None and one.operands["unit"] == unit:
            patch(bundle, start, nop)
    with pytest.raises(AssertionError):
        check_streams(bundle, config)


def change_store(bundle: Bundle, core: int, word: str, by: int) -> None:
    """Change a word in the descriptor of a core's first store."""
    entry = bundle.metadata.steps[0].entry
    assert entry is not None
    events = core_events(bundle, entry, core)
    job = next(e for e in events if isinstance(e, Job) and e.unit == Unit.STORE)
    record = job.words["dram"].to_bytes(4, "little")
    index = get_word_indices("store")
    image_ = bundle.image.tobytes()
    start = image_.index(record, bundle.sections[DESCRIPTORS][0] - bundle.image_base)
    start += 4 * (index[word] - index["dram"])
    patch(bundle, start, job.words[word] + by)


def test_stores_of_two_cores_to_the_same_bytes_are_found() -> None:
    bundle, config = compile_tiled()
    change_store(bundle, 0, "count_y", 1)
    with pytest.raises(AssertionError, match=r"stored twice|reads what nobody wrote"):
        check_streams(bundle, config)
