"""A bundle carries the module that it was made from; without one, or a damaged one, it says so."""

import json
import random

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shared_files import shared_names
from test_bundle_damaged import update_digest
from tiers import each_value, examples, program_parts

from nmpsim.bundle import Metadata, parse_bundle, read_bundle
from nmpsim.bundle.assembly import assemble, disassemble_bundle
from nmpsim.bundle.debug import PackedConstantLocation, make_debug_sections
from nmpsim.bundle.layout import DEBUG_SECTIONS, LIR_CONSTANTS, LIR_INDEX, LIR_TEXT
from nmpsim.bundle.write import BundleBuilder, write_bundle
from nmpsim.compiler.driver import compile_module
from nmpsim.config import default_device
from nmpsim.diagnostics import UserError
from nmpsim.isa.layouts import pack_weights
from nmpsim.isa.table import DRAM_BASE
from nmpsim.lir.constants import attach_arrays, attach_constants, find_tensors_file
from nmpsim.lir.nodes import Module
from nmpsim.lir.parser import parse, parse_file
from nmpsim.lir.verify import verify

TEXT = """function net
declare {
  %w = WeightVar i8[S:0.100000001 O:3][-13.100,12.400]<4 x 3> const
  %b = WeightVar i32[S:0.050000001 O:0][-1.000,1.000]<3> const
  %c = WeightVar float<2> const
  %x = WeightVar i8[S:0.001000000 O:-2][-0.126,0.129]<1 x 4> mutable
  %y = WeightVar i8[S:0.300000012 O:0][-38.400,38.100]<1 x 3> mutable

  ; size = 39 bytes
}

code {
  0 %fc_res = allocactivation  { Ty: i8[S:0.300000012 O:0][-38.400,38.100]<1 x 3> } // size: 3
  1 %fc = fullyconnected @out %fc_res, @in %x, @in %w, @in %b
  2 %leaky = leakyrelu @out %y, @in %fc_res { Alpha: 0.30000001192092896 }
  3 %dealloc_fc_res = deallocactivation @out %fc_res // size: 3
}
"""
VALUES = {
    "w": np.arange(-6, 6, dtype=np.int8).reshape(4, 3),
    "b": np.array([1, -2, 1 << 28], np.int32),
    "c": np.array([np.nan, -0.0], np.float32),
}


@pytest.fixture
def module() -> Module:
    """Return a module whose scale and attribute have more digits than its text shows."""
    module, _ = attach_arrays(
        parse(TEXT), VALUES, {"x": {"scale": 0.00100000016391277, "offset": -2}}
    )
    verify(module)
    return module


def assert_same(actual: Module, expected: Module) -> None:
    assert actual == expected
    assert list(actual.constants) == [w.name for w in expected.weights if w.constant]
    for name, values in expected.constants.items():
        found = actual.constants[name]
        assert (found.dtype, found.shape) == (values.dtype, values.shape)
        assert found.tobytes() == values.tobytes()
        assert not found.flags.writeable


def build(module: Module, held: dict[str, np.ndarray] | None = None) -> bytes:
    builder = BundleBuilder()
    at = {name: builder.add_constant(name, values) for name, values in (held or {}).items()}
    for name, chunks in make_debug_sections(module, at).items():
        builder.set_debug_section(name, chunks)
    return bytes(builder.build_file(Metadata("p", "p.lir", "nmp", {}, (), (), (), ())))


def test_the_module_survives_a_round_trip(module):
    assert_same(parse_bundle(build(module)).module(), module)
    image = compile_module(module, default_device())
    assert_same(parse_bundle(image).module(), module)


def test_constants_of_the_image_are_not_stored_twice(module):
    data = build(module, {"c": VALUES["c"]})
    bundle = parse_bundle(data)
    assert_same(bundle.module(), module)
    assert len(bundle.debug[LIR_CONSTANTS]) == 64 + 12
    assert np.shares_memory(bundle.module().constants["c"], bundle.image)


def test_constants_are_read_in_place(module, tmp_path):
    write_bundle(tmp_path / "net.bin", build(module))
    constants = read_bundle(tmp_path / "net.bin").module().constants
    assert not any(values.flags.owndata for values in constants.values())
    assert all(values.ctypes.data % 64 == 0 for values in constants.values())


RECORDED = [n for n in shared_names("*.lir.txt") if ".before_opt." not in n]


@pytest.mark.parametrize("name", each_value(RECORDED, program_parts))
def test_recorded_programs_survive(shared, name):
    path = shared / name
    values = path.with_name(path.name.replace("lir.txt", "npz"))
    if not values.exists() or "resnet50" in name:
        pytest.skip("its constants are not recorded")
    recorded, _ = attach_constants(parse_file(path), values, find_tensors_file(path))
    assert_same(parse_bundle(build(recorded)).module(), recorded)


def test_a_module_without_constants_is_stored(module):
    text = TEXT.replace("const", "mutable")
    plain, _ = attach_arrays(parse(text), {})
    assert_same(parse_bundle(build(plain)).module(), plain)


def test_debug_sections_are_not_loaded(module):
    bundle = parse_bundle(build(module))
    assert not set(DEBUG_SECTIONS) & set(bundle.sections)
    assert bundle.image.size < 200


def test_a_bundle_without_module_runs(bundle_bytes):
    with pytest.raises(UserError, match="BUN005") as raised:
        parse_bundle(bundle_bytes, "net.bin").module()
    (diagnostic,) = raised.value.diagnostics
    assert str(diagnostic.place) == "net.bin"
    assert LIR_TEXT in str(diagnostic.found)
    assert "nmpsim compile" in str(diagnostic.hint)


def test_the_assembler_keeps_the_module(module):
    data = build(module, {"c": VALUES["c"]})
    text = disassemble_bundle(parse_bundle(data), data=True)
    assert assemble(text).build_bundle() == data
    assert LIR_TEXT not in disassemble_bundle(parse_bundle(data))


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        (".section .debug", "ASM002", "unknown section"),
        (".section .nmpsim.lir\nhere: .byte 1", "ASM001", "labels are not allowed"),
        (".section .nmpsim.lir\nnop", "ASM001", "is not allowed here"),
    ],
)
def test_debug_sections_survive_assembly(text, code, message):
    with pytest.raises(UserError, match=message) as raised:
        assemble(f"_start: nmp.halt\n{text}")
    assert raised.value.diagnostics[0].code == code


# --- weights that the image holds packed -----------------------------------------------------


def build_in_pieces(module: Module) -> bytes:
    """Build a bundle with ``w`` packed in two pieces along outputs and two along inputs."""
    builder, weights = BundleBuilder(), module.constants["w"].T[:, None, None]
    at = [
        builder.add_constant("", pack_weights(weights[out, :, :, depth]))
        for out in (slice(0, 2), slice(2, 3))
        for depth in (slice(0, 3), slice(3, 4))
    ]
    packed = PackedConstantLocation("w", "IO", (0, 2, 3), (0, 3, 4), tuple(at))
    for name, chunks in make_debug_sections(module, {}, {"w": packed}).items():
        builder.set_debug_section(name, chunks)
    return bytes(builder.build_file(Metadata("p", "p.lir", "nmp", {}, (), (), (), ())))


def test_packed_weights_are_stored_once(module):
    bundle = parse_bundle(build_in_pieces(module))
    assert_same(bundle.module(), module)
    assert len(bundle.debug[LIR_CONSTANTS]) == 64 + 8  # the bias and a constant of float32


@pytest.mark.parametrize(
    "change",
    [
        {"order": "OI"},
        {"order": "II"},
        {"outputs": [0, 2, 4]},
        {"outputs": [0, 3, 3]},
        {"outputs": [1, 2, 3]},
        {"outputs": []},
        {"outputs": [0, 3]},
        {"inputs": [0, 4, 4]},
        {"inputs": [0, -3, 4]},
        {"at": []},
        {"at": [DRAM_BASE + 192] * 4},
        {"at": [DRAM_BASE, DRAM_BASE + 192, DRAM_BASE + 384, DRAM_BASE + (1 << 29)]},
        {"outputs": list(range(1 << 16)), "inputs": list(range(1 << 16))},
        {"name": "c"},
    ],
)
def test_impossible_packed_weights_are_refused(module, change):
    index = json.loads(bytes(parse_bundle(build_in_pieces(module)).debug[LIR_INDEX]))
    index["packed"][0].update(change)
    image = parse_bundle(build_in_pieces(module)).image
    assert outcome(with_section(module, LIR_INDEX, json.dumps(index).encode(), image)) == "BUN002"


def test_many_constants_cannot_share_packed_bytes():
    """Unpacked they would take memory without end."""
    names = [f"w{number}" for number in range(9)]
    line = next(one for one in TEXT.splitlines(keepends=True) if "%w =" in one)
    text = TEXT.replace(line, line + "".join(line.replace("%w", f"%{name}") for name in names))
    text = text.replace("size = 39", "size = 147")
    values = {**VALUES, **dict.fromkeys(names, VALUES["w"])}
    module, _ = attach_arrays(parse(text), values)

    def built(sharing: list[str]) -> bytes:
        builder = BundleBuilder()
        at = builder.add_constant("", pack_weights(VALUES["w"].T[:, None, None]))
        packed = {
            name: PackedConstantLocation(name, "IO", (0, 3), (0, 4), (at,)) for name in sharing
        }
        for name, chunks in make_debug_sections(module, {}, packed).items():
            builder.set_debug_section(name, chunks)
        return bytes(builder.build_file(Metadata("p", "p.lir", "nmp", {}, (), (), (), ())))

    assert outcome(built(names[:1])) == ""
    assert outcome(built(names)) == "BUN002"


# --- hostile contents -----------------------------------------------------------------------


def with_section(module: Module, name: str, contents: bytes, image: bytes = b"") -> bytes:
    builder = BundleBuilder()
    builder.add_constant("", bytes(image))
    for section, chunks in {**make_debug_sections(module, {}), name: [contents]}.items():
        builder.set_debug_section(section, chunks)
    return bytes(builder.build_file(Metadata("p", "p.lir", "nmp", {}, (), (), (), ())))


def outcome(data: bytes) -> str:
    """Return the code of the only error, or an empty text."""
    try:
        parse_bundle(data, "net.bin").module()
    except UserError as error:
        (diagnostic,) = error.diagnostics
        assert diagnostic.place is not None
        assert diagnostic.place.file == "net.bin"
        assert len(str(error)) < 2000
        return diagnostic.code
    return ""


def change_index(module: Module, change) -> bytes:
    index = json.loads(b"".join(make_debug_sections(module, {})[LIR_INDEX]))
    change(index)
    return with_section(module, LIR_INDEX, json.dumps(index).encode())


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda i: i.update(schema="nmpsim-lir-1"), "BUN003"),
        (lambda i: i.update(extra=1), "BUN002"),
        (lambda i: i.pop("scales"), "BUN002"),
        (lambda i: i["scales"][0].update(scale=0.2), "BUN002"),
        (lambda i: i["scales"][0].update(scale=float("nan")), "BUN002"),
        (lambda i: i["scales"][0].update(offset=4), "BUN002"),
        (lambda i: i["constants"].pop(), "BUN002"),
        (lambda i: i["constants"][0].update(space="file"), "BUN002"),
        (lambda i: i["constants"][0].update(at=-1), "BUN002"),
        (lambda i: i["constants"][0].update(at=1 << 60), "BUN002"),
        (lambda i: i["constants"][2].update(at=130), "BUN002"),
        (lambda i: i["constants"][0].update(space="image"), "BUN002"),
        (lambda i: i["constants"][0].update(space="image", at=DRAM_BASE + 190), "BUN002"),
    ],
)
def test_an_impossible_index_is_refused(module, change, code):
    assert outcome(change_index(module, change)) == code


def test_misaligned_values_of_another_tool_are_read(module):
    data = change_index(module, lambda index: index["constants"][1].update(at=3))
    values = parse_bundle(data).module().constants["b"]
    assert values.flags.aligned
    assert values.shape == (3,)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff\xfe",
        b"function x",
        TEXT.replace("fullyconnected", "fulyconnected").encode(),
        TEXT.replace("<4 x 3>", "<5 x 3>").encode(),
        TEXT.replace("<4 x 3>", "<2147483648 x 2147483648>").encode(),
        TEXT.replace("%fc_res, @in %x", "%fc_res, @in %nothing").encode(),
        b" " * (17 << 20),
    ],
)
def test_an_impossible_text_is_refused(module, text):
    assert outcome(with_section(module, LIR_TEXT, text)) == "BUN002"


def test_truncated_constants_are_refused(module):
    whole = b"".join(make_debug_sections(module, {})[LIR_CONSTANTS])
    for nbytes in range(len(whole)):
        assert outcome(with_section(module, LIR_CONSTANTS, whole[:nbytes])) == "BUN002"


def test_the_digest_covers_the_module(module):
    data = build(module)
    for name in DEBUG_SECTIONS:
        at = data.index(bytes(parse_bundle(data).debug[name]))
        damaged = bytearray(data)
        damaged[at + 5] ^= 4
        with pytest.raises(UserError, match="do not match its digest"):
            parse_bundle(bytes(damaged))


@examples(600)
@given(st.integers(0, 2**32))
def test_changes_with_a_valid_digest_are_refused(seed):
    generator = random.Random(seed)
    parts = {name: b"".join(chunks) for name, chunks in EXAMPLE.items()}
    name = generator.choice(list(parts))
    contents = bytearray(parts[name])
    for _ in range(generator.randint(1, 4)):
        at = generator.randrange(len(contents))
        contents[at : at + generator.choice((0, 1, 1, 1, 7))] = generator.choice(
            (bytes([generator.randrange(256)]), b"9", b"-", b"0", b"%w", b"}", b"e308")
        )
    data = with_section(EXAMPLE_MODULE, name, bytes(contents))
    assert update_digest(data) == data
    assert outcome(data) in ("BUN002", "BUN003", "")


EXAMPLE_MODULE = attrs.evolve(attach_arrays(parse(TEXT), VALUES)[0], file="net.lir")
EXAMPLE = make_debug_sections(EXAMPLE_MODULE, {})
