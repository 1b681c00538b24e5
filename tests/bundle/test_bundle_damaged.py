"""Whatever is in a file, the outcome is a bundle or one clear error."""

import json
import random
import struct

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiers import examples

from nmpsim.bundle import Layer, Metadata, ProgramStep, Tensor, parse_bundle
from nmpsim.bundle.elffile import ElfFile
from nmpsim.bundle.file import DIGEST_BYTES, compute_digest
from nmpsim.bundle.layout import DIGEST, META, RW_BASE
from nmpsim.bundle.schema import format_metadata, parse_metadata
from nmpsim.bundle.write import BundleBuilder
from nmpsim.diagnostics import Place, UserError

CODES = {"BUN001", "BUN002", "BUN003"}


def update_digest(data: bytes) -> bytes:
    """Return the file with a correct digest if it has space for one."""
    try:
        section = ElfFile(memoryview(data), "").sections[DIGEST]
    except (UserError, KeyError):
        return data
    changed = bytearray(data)
    if section.offset + DIGEST_BYTES > len(data):
        return data
    digest = compute_digest(memoryview(data), section.offset)
    changed[section.offset : section.offset + DIGEST_BYTES] = digest
    return bytes(changed)


def outcome(data: bytes) -> str:
    """Return the code of the only error, or an empty text."""
    try:
        parse_bundle(data, "net.bin")
    except UserError as error:
        (diagnostic,) = error.diagnostics
        assert diagnostic.place is not None
        assert diagnostic.place.file == "net.bin"
        return diagnostic.code
    return ""


def test_the_example_is_valid(bundle_bytes):
    assert update_digest(bundle_bytes) == bundle_bytes
    assert outcome(bundle_bytes) == ""


def test_every_flipped_bit_is_noticed(bundle_bytes):
    generator = random.Random(7)
    for _ in range(500):
        damaged = bytearray(bundle_bytes)
        damaged[generator.randrange(len(damaged))] ^= 1 << generator.randrange(8)
        assert outcome(bytes(damaged)) in CODES


def test_every_cut_is_noticed(bundle_bytes):
    for length in range(len(bundle_bytes)):
        assert outcome(bundle_bytes[:length]) in CODES, length
    assert outcome(bundle_bytes + b"\0") == "BUN002"


@examples(600)
@given(st.data())
def test_changes_with_a_valid_digest_are_refused(bundle_bytes, data):
    changed = bytearray(bundle_bytes)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(changed) - 1))
        changed[at] = data.draw(st.integers(0, 255))
    assert outcome(update_digest(bytes(changed))) in CODES | {""}


def test_hostile_header_fields_are_refused(bundle_bytes):
    """Each 16-bit and 32-bit field of every header, with a new digest."""
    header = struct.unpack_from("<16sHHIIIIIHHHHHH", bundle_bytes)
    places = [(at, "<H") for at in (*range(16, 20, 2), *range(40, 52, 2))]
    places += [(at, "<I") for at in range(20, 40, 4)]
    places += [(at, "<I") for at in range(header[5], header[5] + 32 * header[10], 4)]
    places += [(at, "<I") for at in range(header[6], header[6] + 40 * header[12], 4)]
    symtab = ElfFile(memoryview(bundle_bytes), "").sections[".symtab"]
    places += [(at, "<I") for at in range(symtab.offset, symtab.offset + symtab.nbytes, 4)]
    for at, form in places:
        for value in (0, 1, 3, 0x7FFF, 0xFFFF, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF):
            changed = bytearray(bundle_bytes)
            struct.pack_into(form, changed, at, value & (0xFFFF if form == "<H" else 0xFFFF_FFFF))
            assert outcome(update_digest(bytes(changed))) in CODES | {""}, (at, value)


@given(st.binary(max_size=200))
def test_any_bytes_are_refused(data):
    assert outcome(data) == ("BUN001" if data[:4] != b"\x7fELF" else outcome(data))
    assert outcome(b"\x7fELF\x01\x01\x01" + data) in CODES


@pytest.mark.parametrize(
    ("at", "value", "text"),
    [
        (0, b"PK", "does not begin with the bytes of an ELF file"),
        (4, b"\x02", "not a 32-bit little-endian"),
        (18, b"\x28\x00", "not a RISC-V executable"),
        (16, b"\x01\x00", "not a RISC-V executable"),
    ],
)
def test_other_files_are_refused(bundle_bytes, at, value, text):
    changed = bytearray(bundle_bytes)
    changed[at : at + len(value)] = value
    with pytest.raises(UserError) as raised:
        parse_bundle(bytes(changed))
    assert raised.value.diagnostics[0].code == "BUN001"
    assert text in str(raised.value)


def test_an_executable_without_metadata_is_refused(bundle_bytes):
    with pytest.raises(UserError) as raised:
        parse_bundle(bundle_bytes.replace(META.encode() + b"\0", b".comment\0\0\0\0\0"))
    assert raised.value.diagnostics[0].code == "BUN001"
    assert "nmpsim asm" in str(raised.value)


def test_a_damaged_bundle_names_the_byte(bundle_bytes):
    changed = bundle_bytes.replace(b"glow-int", b"glow-ins")
    with pytest.raises(UserError) as raised:
        parse_bundle(changed, "net.bin")
    assert raised.value.diagnostics[0].code == "BUN002"
    assert "net.bin at byte 0x" in str(raised.value)


def test_another_version_is_refused(bundle_bytes):
    changed = update_digest(bundle_bytes.replace(b"nmpsim-bundle-4", b"nmpsim-bundle-9"))
    with pytest.raises(UserError) as raised:
        parse_bundle(changed)
    assert raised.value.diagnostics[0].code == "BUN003"
    assert "'nmpsim-bundle-9'" in str(raised.value)


# --- metadata -------------------------------------------------------------------------------


def _read(text: bytes) -> Metadata:
    return parse_metadata(text, Place("net.bin", offset=64))


def test_metadata_survives_a_round_trip(metadata):
    """Nothing derived is written, whether or not the types of the fields are resolved."""
    attrs.resolve_types(Layer)
    text = format_metadata(metadata)
    assert "display_name" not in text.decode()
    assert _read(text) == metadata


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"{",
        b"[" * 200_000,
        b'{"schema":' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'{"schema": "nmpsim-bundle-4"}',
        b'{"schema": "nmpsim-bundle-4", "x": ' + b"9" * 5000 + b"}",
        b" " * (9 << 20),
    ],
)
def test_invalid_metadata_is_refused(text):
    with pytest.raises(UserError) as raised:
        _read(text)
    assert raised.value.diagnostics[0].code in ("BUN002", "BUN003")
    assert len(str(raised.value)) < 2000


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("program",), 3),
        (("extra",), 3),
        (("device",), []),
        (("inputs",), {}),
        (("inputs", 0, "shape"), "4"),
        (("inputs", 0, "shape", 0), 1.0),
        (("inputs", 0, "address"), True),
        (("inputs", 0, "address"), 1 << 80),
        (("inputs", 0, "scale"), 1),
        (("inputs", 0, "offset"), "0"),
        (("inputs", 0, "more"), 0),
        (("layers", 0, "placement"), "gpu"),
        (("layers", 0, "placement"), []),
        (("layers", 0, "fused"), None),
        (("layers", 0, "numerics"), 3),
        (("steps", 1, "numerics"), None),
        (("steps", 1, "operands", 0, "role"), "inn"),
        (("steps", 1, "attributes"), None),
    ],
)
def test_metadata_of_the_wrong_shape_is_refused(metadata, path, value):
    document = json.loads(format_metadata(metadata))
    *way, last = path
    target = document
    for key in way:
        target = target[key]
    target[last] = value
    with pytest.raises(UserError) as raised:
        _read(json.dumps(document).encode())
    (diagnostic,) = raised.value.diagnostics
    assert diagnostic.code == "BUN002"
    assert str(path[0]) in str(raised.value)


def _tensor(**changes) -> Tensor:
    return attrs.evolve(Tensor("t", "i8", (2, 2), RW_BASE, 0.5, 0), **changes)


@pytest.mark.parametrize(
    ("tensor", "text"),
    [
        (_tensor(elem="i9"), "unknown element type"),
        (_tensor(elem="ui16"), "unknown element type"),
        (_tensor(shape=(-1,)), "invalid shape"),
        (_tensor(shape=(1,) * 17), "invalid shape"),
        (_tensor(shape=(1 << 40,)), "invalid shape"),
        (_tensor(shape=(1 << 32,) * 16), "outside"),
        (_tensor(address=RW_BASE + 166), "outside"),
        (_tensor(address=RW_BASE - 1), "outside"),
        (_tensor(address=0x8000_00C0), "outside"),
        (_tensor(elem="i32", address=RW_BASE + 2), "misaligned"),
        (_tensor(scale=None), "only one of scale and offset"),
        (_tensor(scale=0.0), "scale 0.0"),
        (_tensor(scale=float("nan")), "scale nan"),
    ],
)
def test_impossible_tensors_are_refused(build_with, tensor, text):
    with pytest.raises(UserError) as raised:
        parse_bundle(build_with(inputs=(tensor,)))
    assert raised.value.diagnostics[0].code == "BUN002"
    assert text in str(raised.value)


def _steps(metadata: Metadata, number: int, **changes) -> dict[str, tuple[ProgramStep, ...]]:
    steps = list(metadata.steps)
    steps[number] = attrs.evolve(steps[number], **changes)
    return {"steps": tuple(steps)}


def _layers(metadata: Metadata, **changes) -> dict[str, tuple[Layer, ...]]:
    return {"layers": (attrs.evolve(metadata.layers[0], **changes), metadata.layers[1])}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda m: _steps(m, 0, entry=None), "a step of the device, but has no entry"),
        (lambda m: _steps(m, 0, entry=m.steps[0].entry + 2), "is not in the code"),
        (lambda m: _steps(m, 0, entry=RW_BASE), "is not in the code"),
        (lambda m: _steps(m, 0, opcode="softmax"), "a step of the device, but has opcode"),
        (lambda m: _steps(m, 0, layers=(7,)), "computes layer 7, but the layers are 0 to 1"),
        (lambda m: _steps(m, 0, layers=(1,)), "not placed on the device"),
        (lambda m: _steps(m, 0, layers=()), "the steps compute the layers [1] instead of 0 to 1"),
        (lambda m: _steps(m, 1, entry=m.steps[0].entry), "a step of the host, but has the entry"),
        (lambda m: _steps(m, 1, opcode=None), "a step of the host, but has no opcode"),
        (lambda m: _layers(m, index=1), "layer 0 has the index 1"),
        (lambda m: _layers(m, macs=-1), "negative"),
        (lambda m: {"inputs": m.inputs * 2}, "2 inputs have the name"),
        (
            lambda m: {
                "inputs": (attrs.evolve(m.inputs[0], elem="bool", scale=None, offset=None),),
                "unsigned": (m.inputs[0].name,),
            },
            "cannot be unsigned",
        ),
    ],
)
def test_contradictory_metadata_is_refused(build_with, metadata, change, text):
    with pytest.raises(UserError) as raised:
        parse_bundle(build_with(**change(metadata)))
    assert raised.value.diagnostics[0].code == "BUN002"
    assert text in str(raised.value)


# --- bundles of others ----------------------------------------------------------------------


def _segments_changed(bundle_bytes: bytes, index: int, **fields: int) -> bytes:
    names = ("type", "offset", "address", "physical", "file_bytes", "memory_bytes", "flags")
    changed = bytearray(bundle_bytes)
    for name, value in fields.items():
        struct.pack_into("<I", changed, 52 + 32 * index + 4 * names.index(name), value)
    return update_digest(bytes(changed))


def test_segments_at_other_distances_are_assembled(bundle_bytes):
    plain = parse_bundle(bundle_bytes)
    (old, end), moved = plain.text[0], 0x8100_0000
    changed = bundle_bytes.replace(str(old).encode(), str(moved).encode())
    foreign = parse_bundle(_segments_changed(changed, 1, address=moved))
    assert foreign.image_base == plain.image_base
    assert foreign.text == ((moved, moved + end - old),)
    at = moved - foreign.image_base
    assert foreign.image[at:].tobytes() == plain.image[old - plain.image_base :].tobytes()
    assert foreign.image.flags.writeable


@pytest.mark.parametrize(
    ("index", "fields", "text"),
    [
        (1, {"address": 0x7000_0000}, "below the DRAM"),
        (1, {"address": 0x8000_0000}, "overlap"),
        (1, {"address": 0xB000_0000}, "alternate"),
        (2, {"file_bytes": 4}, "4 bytes of contents"),
        (2, {"memory_bytes": 0x7FFF_FFFF}, "ends beyond 2**32"),
        (1, {"memory_bytes": 4}, "bytes in the file and 4 in memory"),
    ],
)
def test_unloadable_segments_are_refused(bundle_bytes, index, fields, text):
    with pytest.raises(UserError) as raised:
        parse_bundle(_segments_changed(bundle_bytes, index, **fields))
    assert raised.value.diagnostics[0].code == "BUN002"
    assert text in str(raised.value)


def test_a_builder_accepts_any_symbols():
    builder = BundleBuilder()
    names = ["ä", "a b", "%x", "x" * 1000, ".L1", "1"]
    for number, name in enumerate(names):
        builder.define_symbol(name, 4 * number)
    bundle = parse_bundle(builder.build_file(Metadata("", "", "", {}, (), (), (), ())))
    assert list(bundle.symbols) == names
