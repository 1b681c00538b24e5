"""Test attached and refused constants and exact scales."""

import io
import json
import runpy
import struct
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
from shared_files import shared_names
from tiers import each_value, program_parts

from nmpsim.diagnostics import Diagnostic, Place, UserError
from nmpsim.lir.constants import (
    attach_arrays,
    attach_constants,
    find_tensors_file,
    read_constants,
)
from nmpsim.lir.nodes import Module, TensorType
from nmpsim.lir.parser import parse, parse_file
from nmpsim.lir.printer import format_module
from nmpsim.lir.verify import verify

PROGRAMS = [n for n in shared_names("*.lir.txt") if "before_opt" not in n]
EXACT = float(np.float32(0.003920213))  # prints as 0.003920213, as its neighbours do


def program(scale: str = "0.003920213") -> Module:
    q = f"i8[S:{scale} O:1][-1.000,1.000]"
    return parse(
        f"""function f
declare {{
  %w = WeightVar {q}<2 x 3> const
  %n = WeightVar index64<1> const
  %x = WeightVar {q}<2 x 3> mutable
}}
code {{
  0 %a_res = allocactivation  {{ Ty: {q}<2 x 3>}}
  1 %a = elementadd @out %a_res, @in %x, @in %w
  2 %v = tensorview @in %a_res {{ Ty: {q}<6>, Offsets: [0, 0]}}
  3 %u = tensorview @in %v {{ Ty: {q}<6>, Offsets: [0]}}
}}
""",
        "f.lir.txt",
    )


W = np.arange(6, dtype=np.int8).reshape(2, 3)
N = np.zeros(1, np.int64)
ARRAYS = {"const/w": W, "n": N, "act/0001:a:a_res": np.zeros(1)}


def get_scale(module: Module, name: str) -> float:
    types = {w.name: w.type for w in module.weights}
    types |= {i.name: i.attributes["Ty"] for i in module.instructions if "Ty" in i.attributes}
    type = types[name]
    assert isinstance(type, TensorType) and type.quant is not None
    return type.quant.scale


def get_diagnostics(*args: object) -> list[Diagnostic]:
    with pytest.raises(UserError) as caught:
        attach = attach_constants if isinstance(args[1], (Path, list)) else attach_arrays
        attach(*args)
    return list(caught.value.diagnostics)


def entry(scale: float, offset: int = 1) -> dict[str, object]:
    return {"elem": "i8", "scale": scale, "scale_hex": scale.hex(), "offset": offset}


def npz(path: Path, **arrays: np.ndarray) -> Path:
    np.savez(path, **{name.replace("__", "/"): array for name, array in arrays.items()})
    return path


# Values


def test_values_are_found_with_and_without_prefix(tmp_path):
    module, _ = attach_constants(program(), npz(tmp_path / "a.npz", const__w=W, n=N, input__x=W))
    assert set(module.constants) == {"w", "n"}
    assert np.array_equal(module.constants["w"], W)
    assert not module.constants["w"].flags.writeable


@pytest.mark.parametrize("array", [np.asfortranarray(W), W.astype(">i2").astype("i1"), W.copy()])
def test_the_order_of_bytes_and_elements_does_not_matter(tmp_path, array):
    path = npz(tmp_path / "a.npz", w=array, n=N.astype(">i8"))
    module, _ = attach_constants(program(), path)
    assert np.array_equal(module.constants["w"], W)
    assert module.constants["w"].flags.c_contiguous
    assert module.constants["n"].dtype == np.dtype("=i8")


def test_compressed_files_are_read(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", w=W, n=N)
    module, _ = attach_constants(program(), tmp_path / "a.npz")
    assert np.array_equal(module.constants["w"], W)


def test_the_last_of_several_files_takes_precedence(tmp_path):
    files = [npz(tmp_path / "a.npz", w=W, n=N), npz(tmp_path / "b.npz", w=W + 1)]
    module, _ = attach_constants(program(), files)
    assert np.array_equal(module.constants["w"], W + 1)


def test_constants_are_copies():
    array = W.copy()
    module, _ = attach_arrays(program(), {"w": array, "n": N})
    array[:] = 0
    assert np.array_equal(module.constants["w"], W)


def test_missing_values_are_reported():
    problems = get_diagnostics(program(), {"const/ww": W})
    assert [(p.code, p.place) for p in problems] == [
        ("CONST002", Place("f.lir.txt", 3, 3)),
        ("CONST002", Place("f.lir.txt", 4, 3)),
    ]
    assert problems[0].message == "there are no values for %w"
    assert problems[0].hint == "Did you mean 'ww'?"


def test_a_missing_file_of_values_is_one_finding():
    (problem,) = get_diagnostics(program(), [])
    assert (problem.code, problem.place) == ("CONST002", Place("f.lir.txt"))
    assert problem.message == "there are no values for the program's 2 constants"
    assert problem.hint == "Pass --weights FILE.npz."


@pytest.mark.parametrize(
    ("array", "found"),
    [
        (W.astype(np.int16), "int16 <2 x 3>"),
        (W.astype(np.uint8), "uint8 <2 x 3>"),
        (W.T.copy(), "int8 <3 x 2>"),
        (W.ravel(), "int8 <6>"),
    ],
)
def test_unsuitable_values_are_reported(tmp_path, array, found):
    for source in ({"w": array, "n": N}, npz(tmp_path / "a.npz", w=array, n=N)):
        (problem,) = get_diagnostics(program(), source)
        assert (problem.code, problem.place) == ("CONST003", Place("f.lir.txt", 3, 3))
        assert (problem.found, problem.expected) == (found, "int8 <2 x 3>")


# Files that cannot be used


def test_a_missing_file_is_an_error(tmp_path):
    (problem,) = get_diagnostics(program(), tmp_path / "none.npz")
    assert (problem.code, problem.place) == ("FILE001", Place(str(tmp_path / "none.npz")))
    (problem,) = get_diagnostics(program(), tmp_path)
    assert problem.code == "FILE001"


def test_a_file_that_is_not_zip_is_an_error(tmp_path):
    path = tmp_path / "a.npz"
    for content in (b"", b"not a zip", b"\x93NUMPY", b"PK\x03\x04" + bytes(100)):
        path.write_bytes(content)
        (problem,) = get_diagnostics(program(), path)
        assert (problem.code, problem.place) == ("CONST001", Place(str(path)))


def test_damaged_files_are_errors(tmp_path):
    path = npz(tmp_path / "a.npz", w=W, n=N)
    content = path.read_bytes()
    for length in range(0, len(content), 7):
        path.write_bytes(content[:length])
        assert get_diagnostics(program(), path)
    for i in range(len(content)):
        path.write_bytes(content[:i] + bytes([content[i] ^ 0x41]) + content[i + 1 :])
        try:
            attach_constants(program(), path)
        except UserError as error:
            assert error.diagnostics[0].code in ("CONST001", "CONST002", "CONST003")


def test_object_arrays_are_not_unpickled(tmp_path):
    path = npz(tmp_path / "a.npz", w=np.array([[print] * 3] * 2, dtype=object), n=N)
    (problem,) = get_diagnostics(program(), path)
    assert (problem.code, problem.found) == ("CONST001", "Python objects")
    assert (problem.expected or "").startswith("bool, int8, uint8, int16")
    path = npz(tmp_path / "b.npz", w=np.zeros((2, 3), [("a", "i1"), ("b", "i4")]), n=N)
    (problem,) = get_diagnostics(program(), path)
    assert problem.code == "CONST001"


def member(header: str, data: bytes = b"", length: int | None = None) -> bytes:
    text = header.encode("latin-1")
    size = len(text) if length is None else length
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", size) + text + data


def header(shape: str, descr: str = "'|i1'") -> str:
    return f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n"


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "CONST001"),
        (b"\x93NUMPY", "CONST001"),
        (b"\x93NUMPY\x09\x00\x00\x00", "CONST001"),
        (member(header("(2, 3)"), length=9999), "CONST001"),
        (member(header("(2, 3)"), bytes(5)), "CONST001"),
        (member(header("(2, 3)"), bytes(7)), "CONST001"),
        (member(header("(2, 3)", "'<U9'"), bytes(216)), "CONST001"),
        (member("(" * 4000), "CONST001"),
        (member(header("(" + "9" * 150 + ",)")), "CONST003"),
        (member(header("(-2, -3)")), "CONST001"),
        (member(header("(2, 3, 1099511627776)")), "CONST003"),
        (member(header("()")), "CONST003"),
        (member(header("(2, 3)", "__import__('os')")), "CONST001"),
    ],
)
def test_hostile_members_are_refused(tmp_path, content, code):
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("w.npy", content)
    assert get_diagnostics(program(), path)[0].code == code


def test_a_zip_bomb_stays_packed(tmp_path):
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("w.npy", member(header("(2, 3)"), bytes(300_000_000)))
    tracemalloc.start()
    assert get_diagnostics(program(), path)[0].code == "CONST001"
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5_000_000


def test_unknown_compression_is_refused(tmp_path):
    path = tmp_path / "a.npz"
    data = io.BytesIO()
    np.save(data, W)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("w.npy", data.getvalue())
    assert get_diagnostics(program(), path)[0].code == "CONST001"


# Exact scales


def test_exact_scales_go_to_weights_buffers_and_views():
    other = float(np.nextafter(np.float32(EXACT), np.float32(1)))
    tensors = {
        "const/w": entry(EXACT),
        "input/x": entry(other),
        "act/0001:a:a_res": entry(other),
        "act/0009:b:a_res": entry(EXACT),
        "const/n": {"elem": "i64", "shape": [1]},
    }
    module, warnings = attach_arrays(program(), ARRAYS, tensors)
    scales = [get_scale(module, name) for name in ("w", "x", "a_res", "v", "u")]
    assert scales == [EXACT, other, other, other, other]
    assert warnings == ()
    assert format_module(module) == format_module(program())


def test_the_hex_form_is_preferred():
    tensors = {"const/w": {"scale": 0.0039202130, "scale_hex": EXACT.hex(), "offset": 1}}
    module, _ = attach_arrays(program(), ARRAYS, tensors)
    assert get_scale(module, "w") == EXACT
    del tensors["const/w"]["scale_hex"]
    module, _ = attach_arrays(program(), ARRAYS, tensors)
    assert get_scale(module, "w") == EXACT


def test_an_unlisted_scale_is_found_by_its_printed_form():
    exact = float(np.nextafter(np.float32(EXACT), np.float32(1)))
    module, warnings = attach_arrays(program(), ARRAYS, {"act/0001:a:a_res": entry(exact)})
    assert [get_scale(module, name) for name in ("w", "x", "a_res")] == [exact] * 3
    assert warnings == ()


def test_an_unknown_scale_gives_a_warning():
    other = float(np.nextafter(np.float32(EXACT), np.float32(1)))
    tensors = {"const/w": entry(EXACT), "const/z": entry(other)}
    module, warnings = attach_arrays(program(), ARRAYS, tensors)
    assert get_scale(module, "a_res") == EXACT
    assert warnings == (
        "the exact scales of %x, %a_res are unknown: the nine printed decimals are used, so "
        "results can differ in the last bit; pass the exact scales with --tensors FILE",
    )


@pytest.mark.parametrize(
    "wrong", [entry(0.25), entry(EXACT, 2), entry(float("inf")), entry(float("nan")), entry(1e300)]
)
def test_scales_of_another_program_are_refused(wrong):
    (problem,) = get_diagnostics(program(), ARRAYS, {"const/w": wrong})
    assert (problem.code, problem.place) == ("CONST004", Place("f.lir.txt", 3, 3))
    assert problem.expected == "scale 0.003920213, offset 1"


@pytest.mark.parametrize(
    "wrong",
    [{"scale": "x", "offset": 1}, {"scale": 1.0}, {"scale_hex": "0x1p99999", "offset": 0},
     {"scale_hex": 5, "offset": 0}, {"scale": None, "offset": 0}, {"scale": 1.0, "offset": []}],
)  # fmt: skip
def test_impossible_entries_are_refused(wrong):
    assert get_diagnostics(program(), ARRAYS, {"const/w": wrong})[0].code == "CONST004"


def test_an_impossible_entry_names_its_file(tmp_path):
    path = tmp_path / "f.tensors.json"
    path.write_text('{"const/w": {"scale": "x", "offset": 1}}')
    (problem,) = get_diagnostics(program(), npz(tmp_path / "a.npz", w=W, n=N), path)
    assert (problem.code, problem.place) == ("CONST004", Place(str(path)))


@pytest.mark.parametrize(
    ("content", "place", "found"),
    [
        (b'{"a": "\xff"}', {"offset": 7}, "byte 0xff"),
        (b'{"a":\n x}', {"line": 2, "column": 2}, "Expecting value"),
    ],
)
def test_invalid_json_gives_a_clear_error(tmp_path, content, place, found):
    path = tmp_path / "f.tensors.json"
    path.write_bytes(content)
    (problem,) = get_diagnostics(program(), npz(tmp_path / "a.npz", w=W, n=N), path)
    assert (problem.place, problem.found) == (Place(str(path), **place), found)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"\xff\xfe\x00", b"[" * 100_000, b"1" * 9999]
)
def test_unusable_files_of_scales_are_refused(tmp_path, content):
    path = tmp_path / "f.tensors.json"
    path.write_bytes(content)
    weights = npz(tmp_path / "a.npz", w=W, n=N)
    assert get_diagnostics(program(), weights, path)[0].code == "CONST004"
    assert get_diagnostics(program(), weights, tmp_path / "none.json")[0].code == "FILE001"


def test_powers_of_two_need_no_sidecar():
    module, warnings = attach_arrays(program("0.000030518"), ARRAYS)
    assert {get_scale(module, name) for name in ("w", "x", "a_res", "v", "u")} == {2.0**-15}
    assert warnings == ()


def test_scales_that_print_as_one_float32_only_are_known():
    module, warnings = attach_arrays(program("3.430480719"), ARRAYS)
    assert get_scale(module, "w") == float.fromhex("0x1.b719fe0000000p+1")
    assert warnings == ()


def test_other_scales_without_a_sidecar_are_used_as_printed():
    module, warnings = attach_arrays(program(), ARRAYS)
    assert get_scale(module, "w") == EXACT
    assert len(warnings) == 1


def test_the_sidecar_is_in_the_folder_of_the_text(tmp_path):
    (tmp_path / "a.tensors.json").write_text("{}")
    expected = tmp_path / "a.tensors.json"
    assert find_tensors_file(tmp_path / "a.lir.txt") == expected
    assert find_tensors_file(tmp_path / "a.lir") == expected
    assert find_tensors_file(tmp_path / "b.lir.txt") is None


# The reference programs


@pytest.fixture(scope="module")
def recipe(shared):
    """Return ResNet-50's convolution weights for 8 and 16 bits, which its files lack."""
    weights = runpy.run_path(str(shared / "lir/resnet50/weights_recipe.py"))["weights"]
    return {bits: weights(bits) for bits in (8, 16)}


def read_arrays(module: Module, file: Path, recipe: dict[int, dict[str, np.ndarray]]):
    arrays = read_constants(module, file.with_name(file.name.replace(".lir.txt", ".npz")))
    if "resnet50" in file.parts:
        made = recipe[16 if "i16_pow2_b16" in file.parts else 8]
        names = {w.name: w.name.split("__")[0] for w in module.weights}
        arrays |= {name: made[layer] for name, layer in names.items() if layer in made}
    return arrays


@pytest.mark.parametrize("name", each_value(PROGRAMS, program_parts))
def test_constants_of_reference_programs_are_read(shared, recipe, name):
    file = shared / name
    module = parse_file(file)
    sidecar = find_tensors_file(file)
    assert sidecar is not None
    tensors = json.loads(sidecar.read_text())
    arrays = read_arrays(module, file, recipe)
    exact, warnings = attach_arrays(module, arrays, tensors)
    assert warnings == ()
    verify(exact)
    assert format_module(exact) == format_module(module)
    assert set(exact.constants) == {w.name for w in module.weights if w.constant}
    for key, found in tensors.items():
        quantized = "scale" in found
        if key.startswith("const/") and quantized:
            assert get_scale(exact, key.removeprefix("const/")) == found["scale"]
        elif key.startswith("act/") and quantized:
            assert get_scale(exact, key.split(":")[2]) == found["scale"]
    if "pow2" in name:  # and then the sidecar is not needed
        assert attach_arrays(module, arrays) == (exact, ())
