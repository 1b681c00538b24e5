"""Recorded layers and networks of Glow, TFLite, ONNX Runtime and PyTorch, with their profiles."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import onnx
from numerics.vectors import glow_cases
from recorded_programs import Recorded, programs
from torch_records import DigitsRecording, record_operation
from written_programs import Program as WrittenProgram

from nmpsim.analysis.program import Program, load_program, make_model_program
from nmpsim.compiler.resolve import find_inputs_and_outputs
from nmpsim.frontends import import_model
from nmpsim.frontends.imported_model import ImportOptions
from nmpsim.frontends.torch import lower_recording
from tests.conformance.test_golden_glow import VECTORS
from tests.conformance.test_tflite_int16 import recorded
from tests.frontends.conftest import index_cases

Array = np.ndarray[Any, Any]


@attrs.frozen
class RecordedCase:
    """Recorded program: its file's name, the program, and the recorded arrays by name."""

    name: str
    program: Program
    arrays: dict[str, Array]
    """Arrays by names of tensors; those of a network have the names of its runtime."""


Source = Callable[[Path, Path], Iterator[RecordedCase]]
"""Yields the cases of a source from the shared folder and a folder for temporary files."""


def _make_case(name: str, program: Program, *arrays: Array) -> RecordedCase:
    """Return a case of one layer, with arrays of the program's inputs and its output."""
    inputs, outputs = find_inputs_and_outputs(program.module)
    names = [view.name for view in (*inputs, *outputs)]
    return RecordedCase(name, program, dict(zip(names, arrays, strict=True)))


def _load_model(path: Path, inputs: Sequence[Array]) -> Program:
    """Load a one-operation model, whose file may lack the shapes of its inputs."""
    shapes = {}
    if path.suffix == ".onnx":
        names = [one.name for one in onnx.load(str(path)).graph.input]
        shapes = dict(zip(names, (values.shape for values in inputs), strict=True))
    imported = import_model(path, options=ImportOptions(input_shapes=shapes))
    assert imported is not None
    return make_model_program(imported)


def list_glow_layers(shared: Path, folder: Path) -> Iterator[RecordedCase]:
    """Yield Glow's recorded convolutions, matrix products and average pools."""
    for file, numerics, key, build, _ in VECTORS:
        cases = [case for case in glow_cases(shared, f"{file}.npz") if key in case]
        is_identified = file.startswith(("conv", "fc")) or "avgpool" in key
        for index, case in enumerate(cases if is_identified else ()):
            written = WrittenProgram()
            build(written, case)
            path = written.write(folder)
            name = f"{file} {key} {index}"
            (x,) = written.inputs.values()
            program = load_program(path, path.with_name("written.npz")).with_numerics(numerics)
            yield _make_case(name, program, x, case[key])


def list_glow_networks(shared: Path, folder: Path) -> Iterator[RecordedCase]:
    """Yield the networks that Glow's CPU backend or Interpreter ran."""
    for name in programs(r"lir(_real)?/\w+/i(8|16)_\w+/(cpu|cpumax|cpuold|interp)\.lir\.txt$"):
        if "resnet50" in name:
            continue
        one = Recorded(name)
        numerics = "glow-float" if one.flavour == "interp" else "glow-int"
        program = load_program(one.text, one.beside("npz")).with_numerics(numerics)
        with np.load(one.beside("npz")) as archive:
            yield RecordedCase(name, program, dict(archive))


def list_front_end_layers(archive: str, ending: str, *kinds: str) -> Source:
    """Return a source of the one-operation models in an archive of golden/frontends."""

    def source(shared: Path, folder: Path) -> Iterator[RecordedCase]:
        path = shared / "golden" / "frontends" / archive
        with np.load(path) as file:
            names = dict.fromkeys(key.partition("/")[0] for key in file.files)
        list_cases = index_cases(path, ending, folder)
        for kind in names:
            if kind.startswith(kinds):
                for one in list_cases(kind):
                    program = _load_model(one.model, one.inputs)
                    yield _make_case(one.name, program, *one.inputs, *one.outputs)

    return source


def list_tflite_int16_layers(shared: Path, folder: Path) -> Iterator[RecordedCase]:
    """Yield the Int16 convolutions of TFLite's tests."""
    for one in recorded(shared, "conv"):
        path = shared / "golden" / "tflite_int16" / "conv" / one.name
        x = one.inputs[0]["data"]
        yield _make_case(one.name, load_program(path), x, one.golden)


def list_torch_layers(shared: Path, folder: Path) -> Iterator[RecordedCase]:
    """Yield PyTorch's recorded convolutions and linear layers."""
    for path in sorted((shared / "golden" / "torch").glob("*.npz")):
        with np.load(path) as archive:
            case = dict(archive)
        case["meta"] = json.loads(str(case["meta"]))
        if case["meta"]["kind"] in ("conv", "linear"):
            recording, inputs = record_operation(case, case["meta"]["engine"])
            program = make_model_program(lower_recording(recording))
            yield _make_case(path.stem, program, *inputs.values(), case["y"])


def list_torch_networks(shared: Path, folder: Path) -> Iterator[RecordedCase]:
    """Yield PyTorch's recorded network of digits with each of its engines."""
    for engine in ("fbgemm", "qnnpack"):
        digits = DigitsRecording(shared, engine, 32)
        program = make_model_program(lower_recording(digits.recorded(engine)))
        names = ("q", "c1", "blk.dw", "blk.pw", "blk", "mp", "c2", "ap", "fc")
        arrays = {name.replace("blk", "blk.add") if name == "blk" else name:
                  digits.activation(name) for name in names}  # fmt: skip
        yield RecordedCase(engine, program, arrays)


def list_networks(ending: str, *patterns: str) -> Source:
    """Return a source of the trained networks with recorded results of all layers."""

    def source(shared: Path, folder: Path) -> Iterator[RecordedCase]:
        for pattern in patterns:
            for path in sorted((shared / "models").glob(f"*/{pattern}")):
                model = path.parent / f"{path.stem.replace('intermediates_ort', 'model')}.onnx"
                if ending == ".tflite":
                    model = path.with_name("model.tflite")
                elif not model.exists():
                    model = path.with_name("model_qdq_tf2onnx.onnx")
                with np.load(path) as archive:
                    arrays = dict(archive)
                yield RecordedCase(str(path.relative_to(shared)), load_program(model), arrays)

    return source


SOURCES: dict[str, Source] = {
    "Glow layers": list_glow_layers,
    "Glow networks": list_glow_networks,
    "TFLite layers": list_front_end_layers(
        "tflite_ops.npz", ".tflite",
        *(f"{ties}{kind}" for ties in ("", "ties_")
          for kind in ("CONV_2D", "DEPTHWISE", "FULLY_CONNECTED", "TRANSPOSE_CONV",
                       "AVERAGE_POOL_2D", "MEAN")),
    ),
    "TFLite Int16 layers": list_tflite_int16_layers,
    "TFLite networks": list_networks(".tflite", "intermediates_litert_ref.npz"),
    "ONNX Runtime layers": list_front_end_layers(
        "ort_ops.npz", ".onnx", "QLinearConv", "QLinearMatMul", "QLinearGlobalAveragePool"
    ),
    "ONNX Runtime networks": list_networks(".onnx", "intermediates_ort_*.npz"),
    "PyTorch layers": list_torch_layers,
    "PyTorch networks": list_torch_networks,
}  # fmt: skip
