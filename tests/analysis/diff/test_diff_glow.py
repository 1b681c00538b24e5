"""Test the reader of files that Glow's instrumentation writes."""

from pathlib import Path

import numpy as np
import pytest
from glow_dumps import DumpedTensor, console_text, contents, write_folder
from hypothesis import given
from hypothesis import strategies as st
from tiers import examples

from nmpsim.analysis.diff import (
    compare_runs,
    list_saved_tensors,
    read_console_tensors,
    read_folder_tensors,
)
from nmpsim.diagnostics import UserError
from nmpsim.lir.parser import parse

RNG = np.random.default_rng(3)
QUANT = "[S:0.015625000 O:-3][-1.953,2.031]"
INT8 = RNG.integers(-128, 128, (1, 5, 6, 4), np.int8)
FLOAT = RNG.normal(size=(1, 10)).astype(np.float32)
TENSORS = [
    DumpedTensor("conv1__2", "Dest", INT8, QUANT),
    DumpedTensor(
        "conv1__2", "Src", RNG.integers(-128, 128, (1, 6, 7, 3), np.int8), QUANT, "before"
    ),
    DumpedTensor("conv1__2", "Bias", RNG.integers(-(10**9), 10**9, 4, np.int32), "", "before"),
    DumpedTensor("zeros", "Dest", np.zeros((2, 3), np.int16), QUANT),
    DumpedTensor("prob_dequantize", "Dest", FLOAT),
]
SPLICES = (b"nan, ", b"-inf, ", b"1e999, ", b"9" * 22 + b", ", b"<2147483647 x 9>", b"]", b"\n")
FORMATS = ("bin", "txt", "rawbin", "rawtxt")


def make_saved_results(**changed):
    """Return the tensors above as the saved results of a run."""
    results = {t.instruction: t.values for t in TENSORS if t.operand == "Dest"} | changed
    keyed = {f"{n:04d}:{name}": values for n, (name, values) in enumerate(results.items())}
    return list(list_saved_tensors(keyed, keyed.__getitem__))


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_equals_its_source(tmp_path, format):
    tensors = read_folder_tensors(write_folder(tmp_path, format, TENSORS))
    assert [(t.name, t.operand) for t in tensors] == [(t.instruction, t.operand) for t in TENSORS]
    for tensor, written in zip(tensors, TENSORS, strict=True):
        values = tensor.load()
        assert (values.shape, values.array.dtype) == (written.values.shape, written.values.dtype)
        if format.endswith("bin") or written.values.dtype.kind == "i":
            np.testing.assert_array_equal(values.array, written.values.reshape(-1))
    assert not compare_runs(tensors, make_saved_results()).differing


@pytest.mark.parametrize("format", [*FORMATS, "console"])
def test_one_wrong_element_is_found(tmp_path, format):
    wrong = INT8.copy()
    wrong[0, 2, 3, 1] ^= 4
    if format == "console":
        (tmp_path / "log").write_text(console_text(TENSORS))
        tensors = read_console_tensors(tmp_path / "log")
    else:
        tensors = read_folder_tensors(write_folder(tmp_path, format, TENSORS))
    (found,) = compare_runs(tensors, make_saved_results(conv1__2=wrong)).differing
    assert found.name == "conv1__2"
    assert found.difference.first.at == (0, 2, 3, 1)
    assert found.difference.first.expected == INT8[0, 2, 3, 1]
    assert found.worst_ulp == 4


@pytest.mark.parametrize("format", ["txt", "rawtxt"])
def test_floats_are_compared_to_the_last_printed_digit(tmp_path, format):
    tensors = read_folder_tensors(write_folder(tmp_path, format, TENSORS))
    near, far = FLOAT.copy(), FLOAT.copy()
    near[0, 3] = np.nextafter(near[0, 3], np.float32(9))
    far[0, 3] += np.float32(2e-6)
    assert not compare_runs(tensors, make_saved_results(prob_dequantize=near)).differing
    (found,) = compare_runs(tensors, make_saved_results(prob_dequantize=far)).differing
    assert found.difference.first.at == (0, 3)


def test_a_stream_has_six_significant_digits(tmp_path):
    values = np.array([[0.125, -1.5, 1234567.0, 1e-9, 3.0000001]], np.float32)
    write_folder(tmp_path, "rawtxt", [DumpedTensor("a", "Dest", values)])
    (tmp_path / "data0000.txt").write_text("0.125, -1.5, 1.23457e+06, 1e-09, 3, ")
    keyed = {"0001:a": values}
    run = list(list_saved_tensors(keyed, keyed.__getitem__))
    assert not compare_runs(read_folder_tensors(tmp_path), run).differing
    keyed["0001:a"] = values * np.float32(1.0001)
    assert compare_runs(read_folder_tensors(tmp_path), run).differing


def test_the_console_text_has_a_hundred_elements(tmp_path):
    (tmp_path / "log").write_text("noise\n" + console_text(TENSORS) + "Result: 7\n")
    found = compare_runs(read_console_tensors(tmp_path / "log"), make_saved_results())
    assert not found.differing
    assert [(t.name, t.compared_elements) for t in found.tensors] == [
        ("conv1__2", 100),
        ("zeros", 6),
        ("prob_dequantize", 10),
    ]
    hidden = INT8.copy()
    hidden[0, 4, 5, 3] += 1
    assert not compare_runs(
        read_console_tensors(tmp_path / "log"), make_saved_results(conv1__2=hidden)
    ).differing


def test_the_last_inference_on_the_console_counts(tmp_path):
    other = DumpedTensor("conv1__2", "Dest", INT8 // 2, QUANT)
    (tmp_path / "log").write_text(console_text([other]) + console_text(TENSORS))
    assert not compare_runs(read_console_tensors(tmp_path / "log"), make_saved_results()).differing


def test_a_scalar_is_compared(tmp_path):
    (tmp_path / "log").write_text(
        console_text([DumpedTensor("a", "Dest", np.float32(1.5).reshape(()))])
    )
    (tensor,) = read_console_tensors(tmp_path / "log")
    assert (tensor.load().shape, tensor.load().array.tolist()) == ((), [1.5])


def test_an_older_list_with_windows_line_ends_is_read(tmp_path):
    write_folder(tmp_path, "txt", TENSORS, name="Type")
    info = (tmp_path / "instrument-debug.info").read_bytes().replace(b"\n", b"\r\n")
    (tmp_path / "instrument-debug.info").unlink()
    (tmp_path / "debug.info").write_bytes(info)
    assert not compare_runs(read_folder_tensors(tmp_path), make_saved_results()).differing


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("damage", ["short", "long", "empty", "gone", "noise"])
def test_a_damaged_dump_is_refused(tmp_path, format, damage):
    write_folder(tmp_path, format, TENSORS)
    file = tmp_path / f"data0000.{format[-3:]}"
    data = contents(TENSORS[0], format)
    changed = {"short": data[:-40], "long": data + data, "empty": b"", "noise": b"\xff>\x00," * 60}
    if damage == "gone":
        file.unlink()
    else:
        file.write_bytes(changed[damage])
    with pytest.raises(UserError) as caught:
        compare_runs(read_folder_tensors(tmp_path), make_saved_results())
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == ("FILE001" if damage == "gone" else "DUMP001")
    assert file.name in str(diagnostic)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Format: xml\n",
        "Name: a\n",
        "Format: bin\n[0] Dest: data0000.bin float<1>\n",
        "Format: bin\nName: a\n[0] Dest: ../data0000.bin float<1>\n",
        "Format: bin\nName: a\n[0] Dest: data0000.bin float<99999999999999999999>\n",
        "Format: bin\nName: a\n[0] Dest: data0000.bin what<1>\n",
        "Format: bin\nName: a\n[0]\n",
    ],
)
def test_a_damaged_list_is_refused(tmp_path, text):
    (tmp_path / "instrument-debug.info").write_text(text)
    with pytest.raises(UserError):
        read_folder_tensors(tmp_path)


MODULE = parse(
    """function main
declare {
  %data = WeightVar i8[S:0.500000000 O:0][-64.000,63.500]<2 x 6> mutable // size: 12
  %out = WeightVar i8[S:0.500000000 O:0][-64.000,63.500]<3 x 4> mutable // size: 12

  ; size = 24 bytes
}

code {
  0 %a_res = allocactivation  { Ty: i8[S:0.500000000 O:0][-64.000,63.500]<3 x 4>} // size: 12
  1 %v = tensorview @in %data { Ty: i8[S:0.500000000 O:0][-64.000,63.500]<3 x 4>, Offsets: [0, 0]}
  2 %a = relu @out %a_res, @in %v
  3 %b = elementadd @out %out, @in %a_res, @in %v
  4 %dealloc_a_res = deallocactivation @out %a_res // size: 12
}
"""
)


@pytest.mark.parametrize("format", FORMATS)
def test_the_program_replaces_a_missing_list(tmp_path, format):
    quant = "[S:0.500000000 O:0][-64.000,63.500]"
    data = RNG.integers(-60, 60, (3, 4), np.int8)
    relu = np.maximum(data, 0)
    tensors = [
        DumpedTensor("a", "Dest", relu, quant),
        DumpedTensor("a", "Src", data, quant),
        DumpedTensor("b", "Dest", relu + data, quant),
        DumpedTensor("b", "LHS", relu, quant),
        DumpedTensor("b", "RHS", data, quant),
    ]
    listed = read_folder_tensors(write_folder(tmp_path, format, tensors))
    (tmp_path / "instrument-debug.info").unlink()
    found = read_folder_tensors(tmp_path, MODULE)
    assert [(t.name, t.operand) for t in found] == [(t.instruction, t.operand) for t in tensors]
    assert not compare_runs(listed, found).differing
    assert len(compare_runs(listed, found).tensors) == 5


def test_a_folder_without_a_list_is_refused(tmp_path):
    (tmp_path / "data0000.bin").write_bytes(b"")
    with pytest.raises(UserError, match="DUMP002"):
        read_folder_tensors(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "debug_print.after.a.Dest.conv\n",
        "debug_print.after.a.Dest.conv\nshape: ( 1 2 )\nmax: 1.000  min: 0.000\n[1.000, \n",
        f"debug_print.after.a.Dest.conv\nshape: ({' 999999999' * 3} )\n[ Zero tensor ]\n",
        "debug_print.after.a.Dest.conv\nshape: ( 1 1 1 1 1 1 1 1 )\n[ Zero tensor ]\n",
    ],
)
def test_a_damaged_console_text_is_refused(tmp_path, text):
    (tmp_path / "log").write_text(text)
    with pytest.raises(UserError, match="DUMP001"):
        read_console_tensors(tmp_path / "log")


def test_a_huge_tensor_of_zeros_needs_no_memory(tmp_path):
    shape = "30000 30000"
    text = f"debug_print.after.conv1__2.Dest.conv\nshape: ( {shape} )\n[ Zero tensor ]\n"
    Path(tmp_path / "log").write_text(text)
    (found,) = compare_runs(read_console_tensors(tmp_path / "log"), make_saved_results()).differing
    assert "shapes differ" in found.problem


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return the contents of dumps in each format and of a console text, by file."""
    folder = tmp_path_factory.mktemp("whole")
    for format in FORMATS:
        write_folder(folder / format, format, TENSORS)
    (folder / "log").write_text(console_text(TENSORS))
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@given(st.data())
@examples(150)
def test_any_bytes_give_a_result_or_an_error(whole, data):
    path = data.draw(st.sampled_from(sorted(whole)), label="file")
    start = data.draw(st.integers(0, len(whole[path])), label="start")
    end = start + data.draw(st.integers(0, 40), label="length")
    noise = data.draw(st.one_of(st.binary(max_size=30), st.sampled_from(SPLICES)), label="noise")
    path.write_bytes(whole[path][:start] + noise + whole[path][end:])
    try:
        if path.name == "log":
            compare_runs(read_console_tensors(path), make_saved_results())
        else:
            compare_runs(read_folder_tensors(path.parent), make_saved_results())
    except UserError as error:
        assert str(error)
    finally:
        path.write_bytes(whole[path])
