"""Float ONNX models: equal to ONNX's own evaluator before they are quantized, near it behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx.reference import ReferenceEvaluator
from onnx_files import Kind, Node, write_model, write_small_network
from PIL import Image

import nmpsim
from nmpsim.cli.app import app
from nmpsim.core.build_report import find_float_quantizing_layers
from nmpsim.frontends import ImportedModel, ImportOptions, import_model
from nmpsim.interpreter import compute_sqnr_db, execute_exact, execute_real
from nmpsim.lir.opcodes import NO_WORK

Array = np.ndarray[Any, Any]
PICTURE = (1, 3, 8, 8)


def numbers(*shape: int) -> Array:
    return np.random.default_rng(shape).normal(0, 0.5, shape).astype(np.float32)


def make_batch_norm(name: str, channels: int) -> dict[str, Array]:
    """Return the parameters of a batch norm."""
    return {
        f"{name}_s": 1 + numbers(channels, 1).reshape(-1) / 2,
        f"{name}_b": numbers(channels, 2)[:, 0],
        f"{name}_m": numbers(channels, 3)[:, 0],
        f"{name}_v": 0.5 + numbers(channels, 4)[:, 0] ** 2,
    }


def float_model(path: Path, nodes: list[Node], constants: dict[str, Array], *out: int) -> Path:
    inputs: dict[str, Kind] = {"image": ("float32", PICTURE)}
    return write_model(path, nodes, inputs, {"y": ("float32", out)}, constants)


def write_network(path: Path) -> Path:
    """Write a network with batch norms before and after convolutions, factors and a residual."""
    nodes: list[Node] = [
        ("Conv", ["image", "w1"], ["c1"], {"pads": [1, 1, 1, 1]}),
        ("BatchNormalization", ["c1", "n1_s", "n1_b", "n1_m", "n1_v"], ["n1"], {}),
        ("Clip", ["n1", "low", "high"], ["r1"], {}),
        ("BatchNormalization", ["r1", "n2_s", "n2_b", "n2_m", "n2_v"], ["n2"], {}),
        ("Conv", ["n2", "w2"], ["c2"], {"pads": [1, 1, 1, 1]}),
        ("Mul", ["f2", "c2"], ["m2"], {}),
        ("Add", ["m2", "b2"], ["a2"], {}),
        ("Add", ["a2", "r1"], ["sum"], {}),
        ("Relu", ["sum"], ["r2"], {}),
        ("MaxPool", ["r2"], ["pool"], {"kernel_shape": [2, 2], "strides": [2, 2]}),
        ("Flatten", ["pool"], ["row"], {}),
        ("Gemm", ["row", "w3", "b3"], ["g"], {"alpha": 0.5, "beta": 2.0, "transB": 1}),
        ("Sigmoid", ["g"], ["sg"], {}),
        ("MatMul", ["sg", "w4"], ["p"], {}),
        ("Add", ["p", "b4"], ["scores"], {}),
        ("Softmax", ["scores"], ["y"], {}),
    ]
    constants = {
        "w1": numbers(4, 3, 3, 3),
        "w2": numbers(4, 4, 3, 3),
        "f2": numbers(1, 4, 1, 1),
        "b2": numbers(4, 1, 1),
        "w3": numbers(6, 64),
        "b3": numbers(6),
        "w4": numbers(6, 5),
        "b4": numbers(5),
        **make_batch_norm("n1", 4),
        **make_batch_norm("n2", 4),
        "low": np.float32(0),
        "high": np.float32(6),
    }
    return float_model(path, nodes, constants, 1, 5)


def samples(count: int) -> Array:
    return np.random.default_rng(3).uniform(-1, 1, (count, *PICTURE)).astype(np.float32)


def expected(path: Path, image: Array) -> Array:
    (y,) = ReferenceEvaluator(onnx.load(path)).run(None, {"image": image})
    return y


def import_network(path: Path) -> ImportedModel:
    found = import_model(path, options=ImportOptions(for_quantization=True))
    assert found is not None
    return found


def run_in_float(program: ImportedModel, image: Array) -> Array:
    """Return the output of the float program."""
    *_, (_, _, values) = execute_real(program.module, {"image": image}, hidden_relu=False)
    (y,) = (one for one in program.module.weights if one.name == "y")
    return values.reshape(y.type.shape)


def list_computing(program: ImportedModel) -> list[str]:
    return [one.opcode for one in program.module.instructions if one.opcode not in NO_WORK]


def test_folded_norms_keep_the_results(tmp_path: Path) -> None:
    path, image = write_network(tmp_path / "net.onnx"), samples(1)[0]
    program = import_network(path)
    np.testing.assert_allclose(run_in_float(program, image), expected(path, image), atol=1e-6)
    operators = {operator.node: operator.why for operator in program.operators}
    assert operators["1 BatchNormalization n1"] == "part of 0 Conv n1"
    assert operators["6 Add a2"] == operators["5 Mul m2"] == "part of 4 Conv a2"
    assert operators["14 Add scores"] == "part of 13 MatMul scores"
    assert "batchnormalization" not in list_computing(program)
    assert list_computing(program).count("elementadd") == 1


@pytest.mark.parametrize(
    "nodes",
    [
        # The sum is read twice: what it was is still needed.
        [
            ("Conv", ["image", "w"], ["c"], {}),
            ("BatchNormalization", ["c", "n_s", "n_b", "n_m", "n_v"], ["n"], {}),
            ("Mul", ["n", "c"], ["y"], {}),
        ],
        # One filter for two convolutions, only one of which has a factor behind it.
        [
            ("Conv", ["image", "w"], ["c"], {}),
            ("Mul", ["c", "three"], ["m"], {}),
            ("Conv", ["image", "w"], ["d"], {}),
            ("Sub", ["m", "d"], ["y"], {}),
        ],
        # Constants that differ by pixel, and that are subtracted from.
        [
            ("Conv", ["image", "w"], ["c"], {}),
            ("Add", ["c", "pixels"], ["a"], {}),
            ("Sub", ["three", "a"], ["y"], {}),
        ],
        [
            ("Conv", ["image", "w", "b"], ["c"], {}),
            ("Sub", ["c", "b1"], ["s"], {}),
            ("Div", ["s", "three"], ["y"], {}),
        ],
    ],
    ids=["read twice", "shared filter", "by pixel", "difference and quotient"],
)
def test_other_factors_are_not_folded(tmp_path: Path, nodes: list[Node]) -> None:
    constants = {
        "w": numbers(4, 3, 3, 3),
        "b": numbers(4),
        "b1": numbers(4, 1, 1),
        **make_batch_norm("n", 4),
    }
    constants |= {"three": np.float32([3]), "pixels": numbers(1, 1, 1, 6)}
    path = float_model(tmp_path / "net.onnx", nodes, constants, 1, 4, 6, 6)
    image = samples(1)[0]
    np.testing.assert_allclose(
        run_in_float(import_network(path), image), expected(path, image), atol=1e-5, rtol=1e-5
    )


def test_a_constant_with_equal_dimensions_is_transposed(tmp_path: Path) -> None:
    nodes: list[Node] = [
        ("Conv", ["image", "w"], ["c"], {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
        ("Relu", ["c"], ["r"], {}),
        ("Add", ["r", "by_row"], ["y"], {}),
    ]
    constants = {"w": numbers(4, 3, 3, 3), "by_row": numbers(4, 1)}
    path, image = float_model(tmp_path / "net.onnx", nodes, constants, 1, 4, 4, 4), samples(1)[0]
    np.testing.assert_allclose(
        run_in_float(import_network(path), image), expected(path, image), atol=1e-5
    )


def test_a_product_folds_only_a_bias_of_one_dimension(tmp_path: Path) -> None:
    nodes: list[Node] = [
        ("MatMul", ["image", "w"], ["p"], {}),
        ("Add", ["p", "by_row"], ["a"], {}),
        ("MatMul", ["a", "v"], ["q"], {}),
        ("Add", ["b", "q"], ["y"], {}),
    ]
    constants = {"w": numbers(8, 5), "by_row": numbers(8, 1), "v": numbers(5, 8), "b": numbers(8)}
    path, image = float_model(tmp_path / "net.onnx", nodes, constants, *PICTURE), samples(1)[0]
    program = import_network(path)
    np.testing.assert_allclose(run_in_float(program, image), expected(path, image), atol=1e-5)
    assert list_computing(program).count("elementadd") == 1


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(one) for one in arguments])


def test_a_float_model_is_quantized_and_its_errors_are_explained(tmp_path: Path) -> None:
    path, held = write_network(tmp_path / "a net.onnx"), samples(6)
    for place, image in enumerate(held):
        np.save(tmp_path / f"{place}.npy", image)
    bundle = tmp_path / "net.bin"
    made = run("quantize", path, "--calibration", tmp_path, "--per-channel", "-o", bundle)
    assert made.exit_code == 0, made.stderr
    assert "1 result stays float" in made.stdout
    assert f"wrote {bundle}: 10 layers on the device" in made.stderr
    # The same by way of LIR.
    lir = tmp_path / "net.lir"
    made = run("quantize", path, "--calibration", tmp_path / "*.npy", "--per-channel", "-o", lir)
    assert made.exit_code == 0, made.stderr
    assert made.stderr.endswith("net.model.json\n")
    made = run("compile", lir, "--weights", tmp_path / "net.npz", "-o", tmp_path / "other.bin")
    assert (made.exit_code, made.stderr.count("warning")) == (0, 0), made.stderr
    bundles = [nmpsim.load(one) for one in (bundle, tmp_path / "other.bin")]
    assert bundles[0].metadata.operators == bundles[1].metadata.operators
    device = nmpsim.Device(threads=1)
    reports = [device.run(one, {"image": held[0]}, save_layers=True) for one in bundles]
    np.testing.assert_array_equal(*(report.outputs["y"] for report in reports))
    right = expected(path, held[0])
    assert compute_sqnr_db(right, reports[0].outputs["y"] - right) > 30
    shadows = [
        nmpsim.Shadow(one).evaluate(report, {"image": held[0]}).shadow
        for one, report in zip(bundles, reports, strict=True)
    ]
    assert shadows[0] is not None
    assert shadows[0] == shadows[1]
    assert (shadows[0].float_weights, shadows[0].unmatched) == ("the bundle", ())
    sizes = {layer.name: layer.accumulated for layer in shadows[0].layers}
    assert {"r1", "n2", "r2", "scores", "y__1"} <= sizes.keys()
    assert all(size is not None and size.sqnr_db > 20 for size in sizes.values())


def test_a_bundle_is_compiled_for_the_given_device(tmp_path: Path) -> None:
    path, small = write_network(tmp_path / "net.onnx"), tmp_path / "small device.toml"
    np.save(tmp_path / "x.npy", samples(1)[0])
    small.write_text("[cores]\ncount = 2\n")
    given = ("quantize", path, "--calibration", tmp_path / "x.npy", "--device", small)
    made = run(*given, "-o", tmp_path / "net.bin")
    assert made.exit_code == 0, made.stderr
    assert made.stderr.endswith("for 2 cores\n")
    made = run(*given, "-o", tmp_path / "net.lir")
    assert (made.exit_code, "pass --device to `nmpsim compile`" in made.stderr) == (2, True), (
        made.stderr
    )
    assert not (tmp_path / "net.lir").exists()
    small.write_text("[cores]\ncount = 0\n")
    made = run(*given, "-o", tmp_path / "other.bin")
    assert made.exit_code == 2
    assert f"{small}" in made.stderr


def test_images_have_the_options_of_a_run(tmp_path: Path) -> None:
    path = write_network(tmp_path / "net.onnx")
    pixels = np.random.default_rng(1).integers(0, 256, (8, 8, 3)).astype(np.uint8)
    (tmp_path / "images").mkdir()
    Image.fromarray(pixels).save(tmp_path / "images" / "one.png")
    options = ("--calibration", tmp_path / "images", "--format", "json")
    made = run("quantize", path, *options, "--image-mode", "0to1", "-o", tmp_path / "net.bin")
    assert made.exit_code == 0, made.stderr
    module = nmpsim.load(tmp_path / "net.bin").module()
    (first,) = (one for one in module.instructions if one.opcode == "quantize")
    types = {i.name: i.attributes["Ty"] for i in module.instructions if "Ty" in i.attributes}
    quant = types[first.operands[0].name].quant
    assert quant.scale == np.float32(pixels.max() / 255 / 255)
    made = run("quantize", path, *options, "-o", tmp_path / "net.bin")
    assert "--image-mode" in made.stderr


def gates() -> list[Node]:
    """Return nodes of a HardSwish and a SiLU whose inner value is read once more."""
    return [
        ("HardSwish", ["image"], ["h"], {}),
        ("Sigmoid", ["h"], ["s"], {}),
        ("Mul", ["s", "h"], ["m"], {}),
        ("MaxPool", ["m"], ["p"], {"kernel_shape": [1, 1]}),
        ("Mul", ["p", "by_channel"], ["y"], {}),
    ]


def test_functions_of_one_value_become_one_table(tmp_path: Path) -> None:
    constants = {"by_channel": numbers(1, 3, 1, 1)}
    path, image = (
        float_model(tmp_path / "net.onnx", gates(), constants, *PICTURE),
        4 * samples(1)[0],
    )
    program = nmpsim.quantize(path, calibration={"image": image})
    assert list_computing(program.imported) == [
        *("quantize", "intlookuptable", "transpose", "maxpool", "elementmul"),
        *("transpose", "dequantize"),
    ]
    operators = {operator.node: operator for operator in program.imported.operators}
    assert operators["2 Mul m"].layers == ("m",)
    assert operators["1 Sigmoid s"].why == "no layer of its own"
    *_, (_, _, values) = execute_exact(program.module, {"image": image})
    right = expected(path, image)
    assert compute_sqnr_db(right, values - right) > 38
    # As four operations and a table of its own.
    other = nmpsim.quantize(path, calibration={"image": image}, keep_float=["m"])
    assert "elementmul" in [result.opcode for result in other.staying_float]
    wide = nmpsim.quantize(path, calibration={"image": image}, precision="int16")
    assert "intlookuptable" not in list_computing(wide.imported)


@pytest.mark.parametrize("command", ["compile", "run"])
def test_a_float_model_gets_a_warning_to_quantize(tmp_path: Path, command: str) -> None:
    path = float_model(tmp_path / "a net.onnx", [("Relu", ["image"], ["y"], {})], {}, *PICTURE)
    np.save(tmp_path / "x.npy", samples(1)[0])
    more = ("-o", tmp_path / "x.bin") if command == "compile" else ("--input", tmp_path / "x.npy")
    said = run(command, path, *more).stderr
    assert f"hint: Quantize the model with `nmpsim quantize '{path}' --calibration" in said


def test_a_quantized_model_is_refused_by_quantize(tmp_path: Path) -> None:
    path = write_small_network(tmp_path / "net.onnx")
    np.save(tmp_path / "x.npy", np.zeros((1, 2, 4, 4), np.float32))
    made = run("quantize", path, "--calibration", tmp_path / "x.npy", "-o", tmp_path / "x.bin")
    assert made.exit_code == 2
    assert "error[QUANT001]" in made.stderr
    assert "hint: Compile it with `nmpsim compile`." in made.stderr


def test_samples_of_several_inputs_are_read(tmp_path: Path) -> None:
    nodes: list[Node] = [("Add", ["a", "b"], ["y"], {})]
    kind: Kind = ("float32", (1, 4))
    path = write_model(tmp_path / "net.onnx", nodes, {"a": kind, "b": kind}, {"y": kind}, {})
    np.save(tmp_path / "two.npy", np.float32([[1, 2, 3, 4], [5, 6, 7, 8]]))
    (tmp_path / "b").mkdir()
    for place in range(2):
        np.save(tmp_path / "b" / f"{place}.npy", np.float32([[place, 0, 0, -1]]))
    given = ("--calibration", f"a={tmp_path / 'two.npy'}", "--calibration", f"b={tmp_path / 'b'}")
    made = run("quantize", path, *given, "-o", tmp_path / "net.lir")
    assert made.exit_code == 0, made.stderr
    assert "error[INPUT001]" in run("quantize", path, *given[:2], "-o", tmp_path / "x.lir").stderr
    wrong = run("quantize", path, "--calibration", f"a={tmp_path / 'nothing'}", "-o", "x.lir")
    assert "error[FILE001]" in wrong.stderr


@pytest.mark.parametrize(("op", "is_told"), [("LogSoftmax", True), ("Neg", False)])
def test_quantized_float_results_are_reported(op: str, is_told: bool, tmp_path: Path) -> None:
    kind: Kind = ("float32", (1, 8))
    grid = {"s": np.array(0.05, np.float32), "z": np.array(3, np.int8)}
    nodes: list[Node] = [("QuantizeLinear", ["x", "s", "z"], ["q"], {})]
    nodes += [("DequantizeLinear", ["q", "s", "z"], ["d"], {}), (op, ["d"], ["e"], {})]
    nodes += [("Transpose", ["e"], ["t"], {"perm": [0, 1]})]
    nodes += [("QuantizeLinear", ["t", "s", "z"], ["r"], {})]
    nodes += [("DequantizeLinear", ["r", "s", "z"], ["y"], {})]
    path = write_model(tmp_path / "n.onnx", nodes, {"x": kind}, {"y": kind}, grid)
    report = nmpsim.Device().run(nmpsim.load(path), {"x": np.ones((1, 8), np.float32)})
    assert [note[:29] for note in report.notes] == ["float32 results are quantized"] * is_told
    metadata = nmpsim.load(path).metadata
    steps = tuple(attrs.evolve(step, opcode="unknown") for step in metadata.steps)
    assert find_float_quantizing_layers(attrs.evolve(metadata, steps=steps)) == ()
