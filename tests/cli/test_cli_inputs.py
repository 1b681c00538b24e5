"""Test ``--input``: assignment of arrays to inputs, and errors for unusable files."""

import io
import os
import zipfile

import numpy as np
import pytest

from nmpsim.bundle import read_bundle
from nmpsim.cli.inputs import find_samples
from nmpsim.cli.options import DEFAULT_IMAGES
from nmpsim.cli.samples import ProgramInputs
from nmpsim.diagnostics import UserError

DATA = np.array([[1, 2, 3, 4]], np.int8)
MASK = np.ones((2, 3), np.float32)


def error(bundle, *arguments: object) -> str:
    """Return the single error that the arguments cause."""
    with pytest.raises(UserError) as raised:
        arrays(bundle, *arguments)
    assert len(raised.value.diagnostics) == 1
    return str(raised.value)


def arrays(bundle, *arguments: object) -> dict[str, np.ndarray]:
    taker = ProgramInputs.from_bundle(read_bundle(bundle).metadata, DEFAULT_IMAGES)
    (sample,) = find_samples([str(a) for a in arguments], taker)
    return {name: one.read() for name, (one,) in sample.sources.items()}


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, DATA)
    return path


def npz(path, **contents):
    with zipfile.ZipFile(path, "w") as archive:
        for key, value in contents.items():
            buffer = io.BytesIO()
            np.lib.format.write_array(buffer, np.asarray(value))
            archive.writestr(f"{key}.npy", buffer.getvalue())
    return path


def test_a_plain_file_goes_to_the_only_input(one_input, data):
    assert np.array_equal(arrays(one_input, data)["data"], DATA)
    assert np.array_equal(arrays(one_input, f"data={data}")["data"], DATA)
    assert np.array_equal(arrays(one_input, f"input/data={data}")["data"], DATA)


def test_a_plain_file_is_not_enough_for_two_inputs(bundle, data):
    text = error(bundle, data)
    assert "error[INPUT001]" in text
    assert "'data', 'mask'" in text
    assert f"hint: Pass --input data={data}." in text


@pytest.mark.parametrize("prefix", ["", "input/"])
def test_an_archive_holds_several_inputs(bundle, tmp_path, prefix):
    contents = {f"{prefix}data": DATA, f"{prefix}mask": MASK, "const/w": DATA}
    found = arrays(bundle, npz(tmp_path / "x.npz", **contents))
    assert np.array_equal(found["data"], DATA)
    assert np.array_equal(found["mask"], MASK)


def test_named_files_are_read(bundle, data, tmp_path):
    other = npz(tmp_path / "m.npz", anything=MASK)
    found = arrays(bundle, f"data={data}", f"mask={other}")
    assert sorted(found) == ["data", "mask"]


def test_unusual_paths_are_accepted(one_input, tmp_path):
    path = tmp_path / "ein = Bild ü.npy"
    np.save(path, DATA)
    assert np.array_equal(arrays(one_input, path)["data"], DATA)
    assert np.array_equal(arrays(one_input, f"data={path}")["data"], DATA)


@pytest.mark.parametrize("dtype", ["<f4", ">f4", ">i2", "<f8", "u1", "?"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_all_number_types_are_read(bundle, data, tmp_path, dtype, order):
    values = np.array([[0, 1, 2], [3, 4, 5]]).astype(dtype, order=order)
    np.save(tmp_path / "m.npy", values)
    found = arrays(bundle, f"data={data}", f"mask={tmp_path / 'm.npy'}")["mask"]
    assert np.array_equal(found, values)
    assert found.dtype.isnative


def test_unknown_missing_and_double_inputs_are_refused(bundle, data, tmp_path):
    text = error(bundle, f"dta={data}")
    assert "error[INPUT001]: the program has no input 'dta'" in text
    assert "hint: Did you mean 'data'?" in text
    text = error(bundle, f"data={data}")
    assert "no value for input 'mask'" in text
    assert "hint: Pass --input mask=FILE.npy" in text
    assert "no value for inputs 'data', 'mask'" in error(bundle)
    assert "'data' is passed twice" in error(bundle, f"data={data}", f"data={data}")
    text = error(bundle, npz(tmp_path / "x.npz", dat=DATA))
    assert "none of the file's arrays" in text
    assert "Rename array 'dat' to 'data'" in text


def test_an_array_of_another_size_is_not_read(one_input, tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((3, 5), np.int8))
    text = error(one_input, tmp_path / "x.npy")
    assert "error[INPUT002]" in text
    assert "found: 3x5, 15 values" in text
    assert "expected: 1x4, 4 values" in text
    np.save(tmp_path / "x.npy", np.int8(1))
    assert "found: scalar, 1 value\n" in error(one_input, tmp_path / "x.npy")


def header(shape: str, descr: str = "|i1", version: bytes = b"\x01\x00") -> bytes:
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY" + version + len(text).to_bytes(2, "little") + text


@pytest.mark.parametrize(
    ("contents", "expected"),
    [
        (b"", "the file is empty"),
        (b"hello world, this is text", "unknown format of an input file"),
        (b"PK\x03\x04 broken", "damaged"),
        (header("(1, 4)"), "does not have the size in its header"),
        (header("(1, 4)") + b"abc", "does not have the size in its header"),
        (header("(1, 4)") + b"abcde", "found: more than"),
        (header("(1, 4)", "|O") + b"abcd", "Python objects"),
        (header("(1, 4)", "<U9"), "has an unsupported element type"),
        (header("(1, 4)", "|S3"), "found: bytes24"),
        (header("(1, 4)", "<c8"), "has an unsupported element type"),
        (header("(1, -4)"), "negative"),
        (header("(1, 4)", version=b"\x09\x00"), "version"),
        (header("(1000000, 1000000)"), "1,000,000,000,000 values"),
        (header("(" * 500 + "1" + ")" * 500), "damaged"),
        (header("-" * 5000 + "1"), "damaged"),
        (header("(1, 'a')"), "damaged"),
        (header("(1, 4)")[:20], "damaged"),
        (b"\x93NUMPY", "damaged"),
        # What NumPy's own reader gives to Python's tokenizer, which fails in ways of its own.
        (header("(1, 4"), "damaged"),
        (header("(1, 4)'"), "damaged"),
        (header("(1, 4)\n   \n  1"), "damaged"),
        (header("(1, 4)\x00"), "damaged"),
        (header("(1, 4\\"), "damaged"),
        (header("(1, 4)")[:10] + b"'''" * 40, "damaged"),
        (header("(1, 4L4)"), "damaged"),
        (header("(1, 4)", "[('a', '<i4'), ('b', '<f4')]"), "damaged"),
        (header("(1, 4, " + "1, " * 50 + ")"), "does not have the size in its header"),
        (header("(1, 4, " + "1, " * 80 + ")") + b"abcd", "damaged"),
        (header("(" + "9" * 190 + ",)"), "values"),
    ],
)
def test_unusable_files_are_refused(one_input, tmp_path, contents, expected):
    path = tmp_path / "bad.npy"
    path.write_bytes(contents)
    text = error(one_input, path)
    assert text.startswith(f"{path}: error[INPUT00")
    assert expected in text


def test_unusable_archives_are_refused(one_input, tmp_path):
    path = npz(tmp_path / "x.npz", data=DATA)
    whole = path.read_bytes()
    for nbytes in range(0, len(whole), 7):
        path.write_bytes(whole[:nbytes])
        assert "error[INPUT003]" in error(one_input, path)
    for position in range(30, len(whole), 3):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 0xFF]) + whole[position + 1 :])
        try:
            arrays(one_input, path)
        except UserError as raised:
            assert raised.diagnostics[0].code.startswith("INPUT00")


def test_an_archive_with_a_huge_claim_is_refused(one_input, tmp_path):
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("data.npy", header("(1, 4)") + bytes(50_000_000))
    assert "found: more than" in error(one_input, path)


def test_objects_are_never_unpickled(one_input, tmp_path):
    np.savez(tmp_path / "x.npz", data=np.array([{"a": 1}], object))
    assert "Python objects" in error(one_input, tmp_path / "x.npz")


def test_special_files_are_refused(one_input, tmp_path):
    assert "error[FILE001]" in error(one_input, tmp_path)
    assert "No such file" in error(one_input, tmp_path / "missing.npy")
    os.mkfifo(tmp_path / "pipe")
    told = error(one_input, tmp_path / "pipe")
    assert "it is a pipe" in told
    assert "hint: Pass a regular file." in told


@pytest.mark.parametrize("prefix", ["", "data=", "other="])
@pytest.mark.parametrize("ending", ["", "*"])
def test_a_too_long_name_is_refused(one_input, prefix, ending):
    assert "error[" in error(one_input, f"{prefix}{'x' * 5000}{ending}")
