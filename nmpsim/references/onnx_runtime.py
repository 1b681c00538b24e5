"""Run ONNX files in ONNX Runtime, with results kept that its fused kernels do compute."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nmpsim.arrays import Array, Arrays
from nmpsim.extras import require_extra
from nmpsim.frontends.onnx.model import get_dimensions, load_model
from nmpsim.references.runtime import EXTRA, ReferenceInput, translate_runtime_errors

_RUNTIME = "ONNX Runtime"
_SETTINGS = {"session.qdqisint8allowed": "1"}
"""Settings that nmpsim follows: with int8 activations, too, QDQ groups are integer kernels."""
_DTYPES = {"float": "float32", "double": "float64"}
"""Element type of ONNX Runtime -> NumPy's name, where the names differ."""
_FLOATS = ("tensor(float)", "tensor(double)", "tensor(float16)", "tensor(bfloat16)")


class OnnxRuntime:
    """ONNX Runtime that has loaded an ONNX file with all graph optimizations."""

    multiplies_pairs = True

    def __init__(self, path: Path) -> None:
        """Load an ONNX file; raise UserError (PKG001, REF001) if that is not possible."""
        with require_extra(EXTRA, "ONNX models run in onnxruntime", place=path):
            import onnxruntime
        self._runtime, self._path, self._model = onnxruntime, path, load_model(path)
        self.name = f"{_RUNTIME} {onnxruntime.__version__}, {', '.join(_SETTINGS)}"
        self._results = [name for node in self._model.graph.node for name in node.output if name]
        self.output_names = tuple(one.name for one in self._model.graph.output)
        levels = onnxruntime.GraphOptimizationLevel
        self._all, self._none = levels.ORT_ENABLE_ALL, levels.ORT_DISABLE_ALL
        has_shape = {one.name: get_dimensions(one) is not None for one in self._model.graph.input}
        with translate_runtime_errors(_RUNTIME, path):
            self._plain: Any = self._load(self._results, self._none)
            self._default: Any = self._load([], self._all, {})
            self.inputs = tuple(
                ReferenceInput(
                    one.name,
                    _parse_dtype(one.type),
                    _parse_shape(one.shape) if has_shape[one.name] else None,
                )
                for one in self._plain.get_inputs()
            )
        self._types = {one.name: one.type for one in self._plain.get_outputs()}
        self._session: Any = None
        self._kept: list[str] = []

    def run(self, inputs: Arrays, float_names: Collection[str]) -> dict[str, Array]:
        """Run the model; return the results of its nodes by name, in the order of the file.

        A float result between DequantizeLinear and QuantizeLinear is left out unless it is in
        ``float_names``: a fused kernel does not compute it.
        """
        with translate_runtime_errors(_RUNTIME, self._path):
            if self._session is None:
                self._kept = self._choose_results(float_names)
                self._session = self._load(self._kept, self._all)
        return self._run(self._session, inputs, self._kept)

    def run_variants(self, inputs: Arrays) -> dict[str, Arrays]:
        """Run the model with default settings and without optimizations; return both outputs."""
        sessions = {"default settings": self._default, "no graph optimizations": self._plain}
        return {
            name: self._run(session, inputs, self.output_names)
            for name, session in sessions.items()
        }

    def _run(self, session: Any, inputs: Arrays, names: Sequence[str]) -> dict[str, Array]:
        with translate_runtime_errors(_RUNTIME, self._path):
            values = session.run(list(names), dict(inputs))
        return dict(zip(names, map(np.asarray, values), strict=True))

    def _choose_results(self, float_names: Collection[str]) -> list[str]:
        """Return the results that can be kept without a change of the fused kernels."""
        kinds = {node.op_type for node in self._model.graph.node}
        has_groups = {"QuantizeLinear", "DequantizeLinear"} <= kinds
        wanted = {*float_names, *self.output_names}
        return [
            name
            for name in self._results
            if (kind := self._types[name]).startswith("tensor(")
            and (not has_groups or kind not in _FLOATS or name in wanted)
        ]

    def _load(self, results: list[str], level: Any, settings: Mapping[str, str] = _SETTINGS) -> Any:
        """Return a session of the model with the results as its outputs."""
        import onnx

        model = onnx.ModelProto()
        model.CopyFrom(self._model)
        known = {one.name for one in model.graph.output}
        model.graph.output.extend(
            onnx.ValueInfoProto(name=name) for name in results if name not in known
        )
        options = self._runtime.SessionOptions()
        options.graph_optimization_level = level
        options.intra_op_num_threads = 1
        options.log_severity_level = 4
        for key, value in settings.items():
            options.add_session_config_entry(key, value)
        folder = str(self._path.resolve().parent)
        options.add_session_config_entry(
            "session.model_external_initializers_file_folder_path", folder
        )
        return self._runtime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )


def _parse_dtype(kind: str) -> np.dtype[Any]:
    """Return the dtype of ``tensor(float)``. Raises TypeError for a type that NumPy lacks."""
    name = kind.removeprefix("tensor(").removesuffix(")")
    return np.dtype(_DTYPES.get(name, name))


def _parse_shape(shape: list[int | str | None]) -> tuple[int, ...]:
    """Return a shape with 0 for open dimensions."""
    return tuple(size if isinstance(size, int) else 0 for size in shape)
