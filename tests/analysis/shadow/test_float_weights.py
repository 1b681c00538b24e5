"""Float weights: files of two kinds, names with and without suffix, layouts, what is refused."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from shadow_samples import parse_module

from nmpsim.analysis.shadow import match_float_weights
from nmpsim.analysis.shadow.constants import find_best_layout, read_floats, read_quantized_constants
from nmpsim.analysis.shadow.matching import match_constants
from nmpsim.diagnostics import Diagnostic, Place, UserError
from nmpsim.extras import get_install_command

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(3)


def quantize(values: Array, scale: float = 1 / 64) -> Array:
    return np.rint(values / scale) * scale


def reals(*shape: int) -> Array:
    return RNG.uniform(-1, 1, shape)


def get_diagnostic(path: Path, sizes: set[int]) -> Diagnostic:
    with pytest.raises(UserError) as caught:
        read_floats(path, sizes)
    (found,) = caught.value.diagnostics
    assert found.place == Place(str(path))
    return found


# Layouts


def hwc_rows(matrix: Array, channels: int) -> Array:
    """Reorder rows of a flattened NCHW activation for a flattened NHWC one."""
    k, n = matrix.shape
    return matrix.reshape(channels, 3, k // channels // 3, n).transpose(1, 2, 0, 3).reshape(k, n)


MATRIX = reals(60, 7)


@pytest.mark.parametrize(
    ("array", "real", "name"),
    [
        (MATRIX, MATRIX, "as it is"),
        (MATRIX.T, MATRIX, "transposed"),
        (MATRIX, hwc_rows(MATRIX, 5), "rows from NCHW to NHWC with 5 channels"),
        (MATRIX.T, hwc_rows(MATRIX, 4), "transposed, rows from NCHW to NHWC with 4 channels"),
        (MATRIX.T, hwc_rows(MATRIX, 5).T, "columns from NCHW to NHWC with 5 channels"),
        (MATRIX[:, :1], MATRIX[:, 0], "reshaped"),
        (reals(4, 3, 5, 5), None, "OIHW to OHWI"),
        (reals(4, 3, 1, 1), None, "OIHW to OHWI"),
        (reals(3, 3, 3, 3), None, "OIHW to OHWI"),
    ],
)
def test_layouts_are_found_by_their_values(array: Array, real: Array | None, name: str) -> None:
    wanted = array.transpose(0, 2, 3, 1) if real is None else real
    found = find_best_layout(array, quantize(wanted))
    assert found is not None
    assert found.name == name
    assert np.array_equal(found.get_values(), wanted)


def test_a_square_matrix_and_its_transpose_are_distinguished() -> None:
    square = reals(100, 100)
    for real, name in ((square, "as it is"), (square.T, "transposed")):
        found = find_best_layout(square, quantize(real))
        assert found is not None
        assert found.name == name


def test_no_layout_has_another_number_of_elements() -> None:
    assert find_best_layout(reals(3, 4), reals(4, 4)) is None
    assert find_best_layout(reals(3, 4), reals(12)) is None


# Names


def test_names_take_precedence_over_values() -> None:
    a, b, c = reals(8), reals(8), reals(8)
    floats = {"b": b, "x/a:0": a, "const/lost": reals(8), "c": c}
    constants = {
        "x_a_0": quantize(a),
        "b__3": quantize(b),
        "renamed": quantize(c),
        "other": reals(8),
    }
    found = match_constants(constants, floats)
    assert [(one.constant, one.source, one.how) for one in found.found] == [
        ("x_a_0", "x/a:0", "name"),
        ("b__3", "b", "name without suffix"),
        ("renamed", "c", "values"),
    ]
    assert found.unmatched == ("other",)
    assert np.array_equal(found.floats["renamed"], c)


def test_an_exact_name_takes_precedence() -> None:
    a, b = reals(4), reals(4)
    found = match_constants({"w__1": quantize(a)}, {"w": b, "w__1": a})
    assert found.found[0].source == "w__1"


def test_a_very_different_constant_is_matched_by_name() -> None:
    found = match_constants({"b": np.zeros(4)}, {"b": np.full(4, 0.1)})
    assert found.found[0].sqnr_db == 0.0
    assert match_constants({"b": np.zeros(4)}, {"c": np.full(4, 0.1)}).unmatched == ("b",)


def test_a_name_of_another_shape_is_no_match() -> None:
    found = match_constants({"w": quantize(MATRIX)}, {"w": reals(3), "other": MATRIX})
    assert (found.found[0].source, found.found[0].how) == ("other", "values")


# Constants


def test_constants_are_dequantized_by_their_scales() -> None:
    one = "i8[S:0.500000000 O:1][-64.500,63.000]"
    module = parse_module(
        f"""
        %w = WeightVar i8[S:0.000000000 O:0][0.000,0.000]<2 x 3> const
        %b = WeightVar i32[S:0.250000000 O:0][0.000,0.000]<2> const
        %s = WeightVar float<2> const
        %o = WeightVar index32<2> const
        %t = WeightVar i8[S:1.000000000 O:0][-128.000,127.000]<256> const
        %x = WeightVar {one}<1 x 3> mutable
        %y = WeightVar {one}<1 x 2> mutable
        """,
        """
        %fc = rowwisequantizedfullyconnected @out %y, @in %x, @in %w, @in %b, @in %s, @in %o
        %look = intlookuptable @out %y, @in %y, @in %t
        """,
        w=np.array([[1, 2, 3], [4, 5, 6]], np.int8),
        b=np.array([4, 8], np.int32),
        s=np.array([0.5, 2.0], np.float32),
        o=np.array([0, 1], np.int32),
        t=np.zeros(256, np.int8),
    )
    found = read_quantized_constants(module)
    assert set(found) == {"w", "b"}
    assert found["w"].tolist() == [[0.5, 1.0, 1.5], [6.0, 8.0, 10.0]]
    assert found["b"].tolist() == [1.0, 2.0]


# Files


def test_npz_files_are_read(tmp_path: Path) -> None:
    path = tmp_path / "some weights.npz"
    np.savez(path, w=np.ones(4, np.float32), h=np.ones(4, np.float16), q=np.ones(4, np.int8))
    np.savez(path, **dict(np.load(path)), long=np.ones(5))
    assert set(read_floats(path, {4})) == {"w", "h"}


def model(*tensors: onnx.TensorProto) -> bytes:
    graph = onnx.helper.make_graph([], "g", [], [], initializer=tensors)
    data: bytes = onnx.helper.make_model(graph).SerializeToString()
    return data


def test_onnx_initializers_are_read(tmp_path: Path) -> None:
    w = reals(2, 3).astype(np.float32)
    path = tmp_path / "model.ONNX"
    path.write_bytes(
        model(
            onnx.numpy_helper.from_array(w, "w"),
            onnx.numpy_helper.from_array(np.ones(6, np.int64), "shape"),
            onnx.numpy_helper.from_array(np.ones(5, np.float32), "other"),
            onnx.helper.make_tensor("brain", onnx.TensorProto.BFLOAT16, [6], [1.5] * 6),
        )
    )
    found = read_floats(path, {6})
    assert set(found) == {"w", "brain"}
    assert np.array_equal(found["w"], w)
    assert found["brain"].tolist() == [1.5] * 6


def test_external_data_of_onnx_are_read(tmp_path: Path) -> None:
    tensor = onnx.numpy_helper.from_array(np.arange(6, dtype=np.float32), "w")
    onnx.save(
        onnx.load_model_from_string(model(tensor)),
        tmp_path / "m.onnx",
        save_as_external_data=True,
        size_threshold=0,
        location="m.data",
    )
    assert read_floats(tmp_path / "m.onnx", {6})["w"].tolist() == [0, 1, 2, 3, 4, 5]
    (tmp_path / "m.data").unlink()
    assert get_diagnostic(tmp_path / "m.onnx", {6}).code == "CONST001"


def test_unusable_files_are_refused(tmp_path: Path) -> None:
    assert get_diagnostic(tmp_path / "none.npz", {1}).code == "FILE001"
    assert get_diagnostic(tmp_path / "none.onnx", {1}).code == "FILE001"
    for name in ("text.npz", "text.onnx", "weights.txt"):
        (tmp_path / name).write_bytes(b"these are no weights\r\n")
        assert get_diagnostic(tmp_path / name, {1}).code == "CONST001"
    (tmp_path / "empty.onnx").write_bytes(b"")
    assert read_floats(tmp_path / "empty.onnx", {1}) == {}


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def without_onnx(name: str, *more: Any, **named: Any) -> Any:
        if name.split(".")[0] == "onnx":
            raise ImportError(name)
        return original(name, *more, **named)

    monkeypatch.setattr(builtins, "__import__", without_onnx)
    found = get_diagnostic(tmp_path / "m.onnx", {1})
    assert found.code == "PKG001"
    assert (
        found.hint == f"Run `{get_install_command('onnx')}`, or save the weights as an .npz file."
    )


def test_a_file_without_the_weights_is_refused(tmp_path: Path) -> None:
    type_ = "i8[S:1.000000000 O:0][-128.000,127.000]<1 x 2>"
    module = parse_module(
        f"%w = WeightVar {type_} const\n%y = WeightVar {type_} mutable",
        "%copy = copy @out %y, @in %w",
        w=np.ones((1, 2), np.int8),
    )
    np.savez(tmp_path / "f.npz", other=np.array([[3.0, -4.0]]), w=np.ones((1, 2), np.int8))
    with pytest.raises(UserError) as caught:
        match_float_weights(module, tmp_path / "f.npz")
    (found,) = caught.value.diagnostics
    assert found.code == "CONST003"
    assert found.found == "1 float arrays of fitting sizes"
    assert found.expected == "an array such as w"


# Batch norms

CHANNELS = 4
FILTER = reals(CHANNELS, 3, 3, 3)
NORM = {
    "gamma": np.array([0.5, -2.0, 3.0, 0.1]),
    "beta": reals(CHANNELS),
    "mean": reals(CHANNELS),
    "var": np.array([0.2, 1.0, 3.0, 7.0]),
}
FACTORS = NORM["gamma"] / np.sqrt(NORM["var"] + 0.01)


def make_normalized(
    tmp_path: Path, *, bias: Array | None = None, more: tuple[Any, ...] = ()
) -> Path:
    """Return an ONNX model of a convolution ``w`` and its batch norm."""
    arrays = {"w": FILTER, **NORM, **({} if bias is None else {"b": bias})}
    inputs = ["x", "w"] + ([] if bias is None else ["b"])
    norm = ["c", "gamma", "beta", "mean", "var"]
    nodes = [
        onnx.helper.make_node("Conv", inputs, ["c"]),
        onnx.helper.make_node("BatchNormalization", norm, ["n"], epsilon=0.01),
        *more,
    ]
    tensors = [onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()]
    graph = onnx.helper.make_graph(nodes, "g", [], [], initializer=tensors)
    path = tmp_path / "model.onnx"
    path.write_bytes(onnx.helper.make_model(graph).SerializeToString())
    return path


@pytest.mark.parametrize("bias", [None, reals(CHANNELS)], ids=["no bias", "bias"])
def test_batch_norms_are_folded(tmp_path: Path, bias: Array | None) -> None:
    path = make_normalized(tmp_path, bias=bias)
    found = read_floats(path, {FILTER.size, CHANNELS})
    assert np.array_equal(found["w"], FILTER)
    x = reals(3, 3, 3)
    sums = (FILTER * x).sum((1, 2, 3)) + (0 if bias is None else bias)
    wanted = (sums - NORM["mean"]) * FACTORS + NORM["beta"]
    name = "n" if bias is None else "b"
    folded = (found["w with its batch norm"] * x).sum((1, 2, 3))
    assert folded + found[f"{name} with its batch norm"] == pytest.approx(wanted)


def test_a_convolution_that_others_read_too_keeps_its_weights(tmp_path: Path) -> None:
    path = make_normalized(tmp_path, more=(onnx.helper.make_node("Relu", ["c"], ["r"]),))
    assert set(read_floats(path, {FILTER.size})) == {"w"}


def test_a_folded_filter_is_found_by_its_name(tmp_path: Path) -> None:
    arrays = read_floats(make_normalized(tmp_path), {FILTER.size})
    folded = quantize((FILTER * FACTORS[:, None, None, None]).transpose(0, 2, 3, 1))
    found = match_constants({"w__1": folded}, arrays).found[0]
    assert (found.source, found.how) == ("w with its batch norm", "name without suffix")
    assert found.sqnr_db > 25
    plain = match_constants({"w__1": quantize(FILTER.transpose(0, 2, 3, 1))}, arrays).found[0]
    assert plain.source == "w"


def test_scaled_channels_are_matched_without_the_norm() -> None:
    """The bias of that layer has the norm in it as well, and another one has not."""
    constants = {
        "w__1": quantize((FILTER * FACTORS[:, None, None, None]).transpose(0, 2, 3, 1)),
        "b": reals(CHANNELS),
        "w2": np.zeros((2, 1, 1, 4)),
        "b2": np.zeros(2),
    }
    arrays = {"w": FILTER, "b": reals(CHANNELS), "w2": reals(2, 4, 1, 1), "b2": reals(2)}
    matches = match_constants(constants, arrays, {"b": "w__1", "b2": "w2"})
    assert [(one.constant, one.how) for one in matches.found] == [
        ("w__1", "name without suffix, by channel times a factor"),
        ("w2", "name"),
        ("b2", "name"),
    ]
    assert matches.unmatched == ("b",)
    assert matches.found[0].sqnr_db > 25


def test_other_weights_are_not_scaled() -> None:
    swapped = quantize(FILTER.transpose(0, 3, 2, 1))
    found = match_constants({"w": swapped}, {"w": FILTER}).found[0]
    assert found.how == "name"
    assert found.sqnr_db < 10
