"""Run TFLite files in LiteRT, with every tensor kept."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from nmpsim.arrays import Array, Arrays
from nmpsim.extras import require_extra
from nmpsim.frontends.tflite.model import read_model
from nmpsim.references.runtime import EXTRA, ReferenceInput, translate_runtime_errors

_RUNTIME = "LiteRT"


class LiteRTRuntime:
    """LiteRT runtime that has loaded a TFLite file with the reference kernels."""

    multiplies_pairs = False

    def __init__(self, path: Path) -> None:
        """Load a TFLite file; raise UserError (PKG001, REF001) if that is not possible."""
        with require_extra(EXTRA, "TFLite models run in ai-edge-litert", place=path):
            import ai_edge_litert
            from ai_edge_litert.interpreter import Interpreter, OpResolverType
        model = read_model(path)  # refuses damaged files, which LiteRT does not
        self._path = path
        self.name = f"{_RUNTIME} {ai_edge_litert.__version__}, reference kernels"
        with translate_runtime_errors(_RUNTIME, path):
            self._interpreter: Any = Interpreter(
                model_path=str(path),
                experimental_preserve_all_tensors=True,
                experimental_op_resolver_type=OpResolverType.BUILTIN_REF,
                num_threads=1,
            )
            self._default: Any = Interpreter(model_path=str(path), num_threads=1)
            self.inputs = tuple(
                ReferenceInput(
                    one["name"], np.dtype(one["dtype"]), tuple(map(int, one["shape_signature"]))
                )
                for one in self._interpreter.get_input_details()
            )
        self.output_names = tuple(one.name for one in model.outputs)
        self._outputs = {one.name: one.index for one in model.outputs}
        self._results = {
            one.name: one.index for operator in model.operators for one in operator.outputs
        }

    def run(self, inputs: Arrays, float_names: Collection[str]) -> dict[str, Array]:
        """Run the model; return the results of its operators by name, in the order of execution."""
        return self._run(self._interpreter, inputs, self._results)

    def run_variants(self, inputs: Arrays) -> dict[str, Arrays]:
        """Run the model with LiteRT's default kernels; return its outputs by settings and name."""
        return {"default kernels (XNNPACK)": self._run(self._default, inputs, self._outputs)}

    def _run(
        self, interpreter: Any, inputs: Arrays, tensors: Mapping[str, int]
    ) -> dict[str, Array]:
        """Run an interpreter and return tensors by name from their indices."""
        with translate_runtime_errors(_RUNTIME, self._path):
            indices = {one["name"]: one["index"] for one in interpreter.get_input_details()}
            for name, values in inputs.items():
                interpreter.resize_tensor_input(indices[name], values.shape)
            interpreter.allocate_tensors()
            for name, values in inputs.items():
                interpreter.set_tensor(indices[name], values)
            interpreter.invoke()
            return {name: interpreter.get_tensor(index) for name, index in tensors.items()}
