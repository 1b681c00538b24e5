"""References with other names, parts of a network, and other layouts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

import nmpsim
from nmpsim.analysis.layer_moves import find_layer_moves
from nmpsim.analysis.matching import StoredTensor, make_stored_tensor, match_layers
from nmpsim.bundle import Bundle
from nmpsim.debugger import Debugger
from nmpsim.debugger.commands.shell import Shell
from nmpsim.debugger.reference import ReferenceOutputs
from nmpsim.diagnostics import UserError
from tests.identify_campaign.models import draw_layers, write_model


@pytest.fixture(scope="module")
def shell(digits: Bundle, seven: dict[str, Any]) -> Shell:
    debugger = Debugger(digits, seven)
    debugger.run_to_end()
    return Shell(debugger, lambda path: pytest.fail(f"nobody reads {path}"))


def list_outputs(shell: Shell) -> dict[str, Any]:
    """Return copies of the outputs of all layers by name."""
    debugger = shell.debugger
    return {one.name: debugger.layer_outputs[one.index].copy() for one in debugger.layers}


def compare(shell: Shell, command: str, arrays: dict[str, Any], **options: Any) -> Any:
    """Return the result of a command with these arrays as the reference."""
    tensors = [make_stored_tensor(name, values) for name, values in arrays.items()]
    shell.reference = ReferenceOutputs(shell.debugger.bundle.metadata, tensors, **options)
    return shell.execute(command)


def test_a_verdict_begins_with_the_number_of_compared_layers(shell: Shell) -> None:
    outputs = list_outputs(shell)
    count = len(outputs)
    found = compare(shell, "diverge", outputs)
    assert found.text.startswith(f"{count} of {count} layers compared\nno layer differs")
    last = list(outputs)[-1]
    del outputs[last]
    found = compare(shell, "diverge", outputs)
    assert found.text.startswith(f"{count - 1} of {count} layers compared; not in the reference: ")
    assert "no compared layer differs" in found.text
    assert (found.data["compared"], found.data["missing"]) == (count - 1, [last])


def test_a_layer_with_unknown_inputs_is_not_blamed(shell: Shell) -> None:
    outputs = list_outputs(shell)
    wrong = {**outputs, "conv2__2": outputs["conv2__2"] ^ 1}
    found = compare(shell, "diverge", {"conv2__2": wrong["conv2__2"]})
    assert found.data["breaking"] == []
    assert "the first compared layer that differs" in found.data["verdict"]
    assert "cannot be told, because the reference lacks its input pool1" in found.data["verdict"]
    assert "cannot be told" in compare(shell, "compare conv2", {"conv2__2": wrong["conv2__2"]}).text
    found = compare(shell, "diverge", wrong)
    assert found.data["breaking"] == ["conv2__2"]


def test_other_names_and_layouts_are_matched(shell: Shell) -> None:
    outputs = list_outputs(shell)
    named = {
        f"t{number}": values.transpose(0, 3, 1, 2) if values.ndim == 4 else values
        for number, values in enumerate(outputs.values())
    }
    found = compare(shell, "diverge", named)
    assert f"{len(outputs)} of {len(outputs)} layers compared, the reference is NCHW" in found.text
    assert "no layer differs" in found.text
    found = compare(shell, "compare conv2", {"x": outputs["conv2__2"]}, names={"x": "conv2"})
    assert (found.data["compared"], found.data["differing"]) == (1, 0)
    with pytest.raises(UserError, match="DIFF001"):
        compare(shell, "compare", {"x": outputs["conv2__2"]}, names={"y": "conv2"})


def read_intermediates(folder: Path) -> list[StoredTensor]:
    """Return the recorded results of TFLite for the first input."""
    archive = np.load(folder / "intermediates_litert_ref.npz")
    return [make_stored_tensor(key, archive[key][:1]) for key in archive.files]


@pytest.mark.parametrize("network", ["resnet8_int8", "vww96_int8"])
def test_tensors_of_tflite_match_by_order_and_values(shared: Path, network: str) -> None:
    folder = shared / "models" / network
    (model,) = folder.glob("*.tflite")
    bundle = nmpsim.compile(model, tiling="simple").bundle
    image = np.load(folder / "inputs.npy")[:1]
    report = nmpsim.Device().run(bundle, [image], save_layers=True)
    outputs = {key.partition(":")[2]: values for key, values in report.layer_outputs.items()}
    references = read_intermediates(folder)
    numbers = {
        name: int(operator.node.split(" ")[0])
        for operator in bundle.metadata.operators
        for name in operator.layers[-1:]
    }
    layers = len(bundle.metadata.layers)
    # Without values, layers of branches with equal shapes are ambiguous.
    for known, at_least in (({}, layers // 2), (outputs, layers)):
        found = match_layers(bundle.metadata, references, outputs=known)
        assert len(found.pairs) >= at_least
        for pair in found.pairs:
            assert int(pair.reference.name.split("_")[0]) == numbers[pair.tensor.name]


def test_adds_match_by_the_names_of_tflite(shared: Path) -> None:
    folder = shared / "models" / "resnet8_int8"
    bundle = nmpsim.compile(folder / "model.tflite", tiling="simple").bundle
    references = read_intermediates(folder)
    numbers = [one.node.split(" ", 2) for one in bundle.metadata.operators]
    named = [
        make_stored_tensor(name, one.load().array.reshape(one.shape))
        for one, (_, _, name) in zip(references, numbers, strict=True)
    ]
    adds = [layer.name for layer in bundle.metadata.layers if layer.op == "elementadd"]
    for chosen in (named, named[::-1]):
        found = ReferenceOutputs(bundle.metadata, chosen).matching
        pairs = {pair.tensor.name: pair for pair in found.pairs}
        assert len(pairs) == len(bundle.metadata.layers)
        assert all(pairs[name].reference.name == name.removesuffix("__1") for name in adds)
        assert {pair.how for pair in found.pairs} == {"name"}


TRANSPOSED = """function main
declare {
  %x = WeightVar float<1 x 2 x 3 x 4> mutable
  %y = WeightVar float<6 x 4> mutable
}
code {
  0 %q_res = allocactivation { Ty: i8[S:0.5 O:3][-65.5,62.0]<1 x 2 x 3 x 4>}
  1 %q = quantize @out %q_res, @in %x
  2 %t_res = allocactivation { Ty: i8[S:0.5 O:3][-65.5,62.0]<1 x 4 x 2 x 3>}
  3 %t = transpose @out %t_res, @in %q_res { Shuffle: [0, 3, 1, 2]}
  4 %q_gone = deallocactivation @out %q_res
  5 %flat = tensorview @in %t_res { Ty: i8[S:0.5 O:3][-65.5,62.0]<4 x 6>, Offsets: [0, 0, 0, 0]}
  6 %u_res = allocactivation { Ty: i8[S:0.5 O:3][-65.5,62.0]<6 x 4>}
  7 %u = transpose @out %u_res, @in %flat { Shuffle: [1, 0]}
  8 %t_gone = deallocactivation @out %t_res
  9 %m_res = allocactivation { Ty: i8[S:0.25 O:3][-32.75,31.0]<6 x 4>}
  10 %m = elementadd @out %m_res, @in %u_res, @in %u_res
  11 %u_gone = deallocactivation @out %u_res
  12 %d = dequantize @out %y, @in %m_res
  13 %m_gone = deallocactivation @out %m_res
}
"""


def test_transposed_layers_have_the_values_of_the_layer_they_read(tmp_path: Path) -> None:
    (tmp_path / "net.lir.txt").write_text(TRANSPOSED)
    bundle = nmpsim.compile(tmp_path / "net.lir.txt").bundle
    moves = find_layer_moves(bundle)
    assert sorted(bundle.metadata.layers[index].name for index in moves) == ["t", "u"]
    x = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4) / 2
    debugger = Debugger(bundle, {"x": x})
    debugger.run_to_end()
    shell = Shell(debugger, lambda path: pytest.fail(f"nobody reads {path}"))
    outputs = list_outputs(shell)
    shell.reference = ReferenceOutputs(
        bundle.metadata,
        [make_stored_tensor("q", outputs["q"]), make_stored_tensor("m", outputs["m"] ^ 1)],
        moves=moves,
    )
    layers = {layer.name: layer for layer in bundle.metadata.layers}
    moved = x.transpose(0, 3, 1, 2) * 2 + 3
    np.testing.assert_array_equal(shell.reference.get_output(layers["t"]), moved)
    np.testing.assert_array_equal(shell.reference.get_output(layers["u"]), moved.reshape(4, 6).T)
    found = shell.execute("diverge")
    assert found.text.startswith("4 of 5 layers compared; not in the reference: d\n")
    assert found.data["breaking"] == ["m"]
    shell.reference = ReferenceOutputs(
        bundle.metadata, [make_stored_tensor("q", outputs["q"] ^ 1)], moves=moves
    )
    found = shell.execute("compare")
    assert (found.data["compared"], found.data["differing"]) == (3, 3)


def test_a_layer_has_the_values_of_its_transposed_output(tmp_path: Path) -> None:
    (tmp_path / "net.lir.txt").write_text(TRANSPOSED)
    bundle = nmpsim.compile(tmp_path / "net.lir.txt").bundle
    debugger = Debugger(bundle, {"x": np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)})
    debugger.run_to_end()
    shell = Shell(debugger, lambda path: pytest.fail(f"nobody reads {path}"))
    outputs = list_outputs(shell)
    wrong = [make_stored_tensor("u", outputs["u"] ^ 1)]
    moves = find_layer_moves(bundle)
    shell.reference = ReferenceOutputs(bundle.metadata, wrong, moves=moves)
    layers = {layer.name: layer for layer in bundle.metadata.layers}
    for name in ("t", "q"):
        expected = shell.reference.get_output(layers[name])
        np.testing.assert_array_equal(expected, outputs[name] ^ 1)
    assert shell.execute("diverge").data["breaking"] == ["q"]


@pytest.fixture(scope="module")
def cubes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Debugger, list[Any]]:
    """Return a finished run of two convolutions of equal height, width and channels.

    The second value is the list of results without bias in the first convolution, as NHWC.
    """
    folder = tmp_path_factory.mktemp("cubes")
    layers = draw_layers(np.random.default_rng(3), 2, 8)
    faulty = [attrs.evolve(layers[0], bias=0 * layers[0].bias), layers[1]]
    x = {"t0": np.random.default_rng(4).integers(-128, 128, (1, 8, 8, 8)).astype(np.int8)}
    runs = []
    for number, chosen in enumerate((layers, faulty)):
        write_model(folder / f"{number}.onnx", chosen, 8)
        bundle = nmpsim.compile(folder / f"{number}.onnx", tiling="simple").bundle
        debugger = Debugger(bundle, x)
        debugger.run_to_end()
        runs.append(debugger)
    outputs = runs[1].layer_outputs
    convs = [one.index for one in runs[1].layers if one.op != "transpose"]
    return runs[0], [outputs[index] for index in convs]


def test_values_and_isolated_layers_determine_the_layout_of_cubes(
    cubes: tuple[Debugger, list[Any]],
) -> None:
    debugger, results = cubes
    shell = Shell(debugger, lambda path: pytest.fail(f"nobody reads {path}"))
    for layout, axes in (("nchw", (0, 3, 1, 2)), ("same", (0, 1, 2, 3))):
        arrays = {f"t{number + 1}": one.transpose(axes) for number, one in enumerate(results)}
        found = compare(shell, "diverge", arrays, moves=find_layer_moves(debugger.bundle))
        assert shell.reference is not None
        assert shell.reference.matching.layout == layout
        assert [one["change"] for one in found.data["explanations"]] == ["a bias of zero"]


def test_a_cube_of_unknown_layout_has_no_cause(cubes: tuple[Debugger, list[Any]]) -> None:
    debugger, results = cubes
    shell = Shell(debugger, lambda path: pytest.fail(f"nobody reads {path}"))
    noise = np.random.default_rng(5).permutation(results[0].reshape(-1)).reshape(results[0].shape)
    found = compare(shell, "diverge", {"t1": noise})
    assert "the layout of the reference is unknown: pass --layout" in found.text
    assert "cannot be told, because the layout of the reference is unknown" in found.text
    assert found.data["explanations"] == found.data["causes"] == []
