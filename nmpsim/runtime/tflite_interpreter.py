"""Interpreter with the interface of LiteRT that runs models on the simulated device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from nmpsim import session
from nmpsim.arrays import Array
from nmpsim.config import DeviceConfig
from nmpsim.core.run import make_layer_key
from nmpsim.diagnostics import fail
from nmpsim.report.data import RunReport
from nmpsim.runtime.errors import check_trap, errors_as_value_errors, refuse_argument

if TYPE_CHECKING:
    from nmpsim.frontends.tflite.model_data import TFLiteTensor


class Interpreter:
    """Interpreter that runs a TFLite model, with the interface of LiteRT's ``Interpreter``.

    Parameters
    ----------
    model_path : path-like, optional
        TFLite file.
    model_content : bytes, optional
        Contents of a TFLite file, in place of the path.
    experimental_preserve_all_tensors : bool
        Whether :meth:`get_tensor` returns results inside the network too.
    device : DeviceConfig, optional
        The simulated device; by default :func:`nmpsim.default_device`.
    **kwargs
        Other arguments of LiteRT, such as ``num_threads``, without effect.

    Raises
    ------
    UserError
        FILE001; PKG001 without the package tflite; ARG001 without a model; MODEL, LIR and COMP
        codes for a model that the device does not support.
    """

    report: RunReport | None = None
    """Report of the last run; None before the first run."""

    def __init__(
        self,
        model_path: session.FilePath | None = None,
        model_content: bytes | None = None,
        *,
        experimental_preserve_all_tensors: bool = False,
        device: DeviceConfig | None = None,
        **kwargs: Any,
    ) -> None:
        if (model_path is None) == (model_content is None):
            raise fail(
                "ARG001",
                "the interpreter needs one model",
                found="no model" if model_path is None else "model_path and model_content",
                expected="model_path or model_content",
            )
        self._config, self._device = device, session.Device(device)
        self._keeps_all = experimental_preserve_all_tensors
        if model_content is None:
            self._load(Path(str(model_path)))
        else:
            with TemporaryDirectory() as folder:
                path = Path(folder) / "model.tflite"
                path.write_bytes(model_content)
                self._load(path)
        self._values: dict[int, Array] = {}
        self._is_allocated = self._has_reset = False

    def _load(self, path: Path) -> None:
        from nmpsim.frontends.tflite.model import read_model

        self._model = read_model(path)
        self._bundle = session.compile(path, device=self._config).bundle

    def allocate_tensors(self) -> None:
        """Set all inputs to zero."""
        self._values = {one.index: np.zeros(one.shape, one.dtype) for one in self._model.inputs}
        self._is_allocated = True

    def get_input_details(self) -> list[dict[str, Any]]:
        """Return a dictionary for each input: name, index, shape, dtype and quantization."""
        return [_describe(one) for one in self._model.inputs]

    def get_output_details(self) -> list[dict[str, Any]]:
        """Return a dictionary for each output, as :meth:`get_input_details`."""
        return [_describe(one) for one in self._model.outputs]

    def get_tensor_details(self) -> list[dict[str, Any]]:
        """Return a dictionary for each tensor of the file, as :meth:`get_input_details`."""
        return [_describe(one) for one in self._model.tensors]

    def set_tensor(self, tensor_index: int, value: npt.ArrayLike) -> None:
        """Set an input, whose type and shape must be equal to the model's.

        Raises
        ------
        RuntimeInputError
            INPUT001 if the tensor is not an input; INPUT002 for a wrong type or shape.
        """
        array = np.asarray(value)
        inputs = {one.index: one for one in self._model.inputs}
        if tensor_index not in inputs:
            expected = ", ".join(f"{one.index} ({one.name})" for one in self._model.inputs)
            refuse_argument("the tensor is not an input", f"tensor {tensor_index}", expected)
        tensor = inputs[tensor_index]
        if array.dtype != tensor.dtype or array.shape != tensor.shape:
            refuse_argument(
                f"the type or the shape of input {tensor.name} is wrong",
                f"{array.dtype} {list(array.shape)}",
                f"{tensor.dtype} {list(tensor.shape)}",
            )
        self._values[tensor_index] = array.copy()

    def resize_tensor_input(
        self, input_index: int, tensor_size: Sequence[int], strict: bool = False
    ) -> None:
        """Accept the shape that the model has; raise RuntimeInputError (INPUT001) for another.

        A program for the device has fixed shapes.
        """
        shapes = {one.index: list(one.shape) for one in self._model.inputs}
        sizes = [int(size) for size in tensor_size]
        if sizes != shapes.get(input_index):
            hint = "Convert the model for this shape."
            refuse_argument("an input cannot be resized", sizes, f"{shapes.get(input_index)}", hint)

    def invoke(self) -> None:
        """Run the model on the inputs.

        Raises
        ------
        RuntimeError
            If :meth:`allocate_tensors` was not called, or the run ends in a trap.
        """
        if not self._is_allocated:
            raise RuntimeError("allocate_tensors() must be called before invoke()")
        names = [one.name for one in self._bundle.metadata.user_inputs]
        values = [self._values[one.index] for one in self._model.inputs]
        inputs = dict(zip(names, values, strict=True))
        with errors_as_value_errors():
            report = self._device.run(
                self._bundle, inputs, save_layers=self._keeps_all, reset_state=self._has_reset
            )
        check_trap(report)
        self._has_reset = False
        self.report = report
        results = self._list_results(report)
        self._values.update(results)

    def get_tensor(self, tensor_index: int, subgraph_index: int = 0) -> Array:
        """Return a copy of the values of a constant, an input or an output.

        Results inside the network are known with ``experimental_preserve_all_tensors`` only.

        Raises
        ------
        RuntimeInputError
            INPUT001 if the tensor has no values.
        """
        values = self._values.get(tensor_index)
        if values is None and 0 <= tensor_index < len(self._model.tensors):
            values = self._model.tensors[tensor_index].values
        if values is None:
            refuse_argument(
                "the tensor has no values",
                f"tensor {tensor_index}",
                "a constant, an input, or an output after invoke()",
                "Pass experimental_preserve_all_tensors=True for results inside the network.",
            )
        return values.copy()

    def tensor(self, tensor_index: int) -> Callable[[], Array]:
        """Return a function that returns a tensor's values, without a copy for an input."""
        return lambda: self._values[tensor_index]

    def reset_all_variables(self) -> None:
        """Let the next run begin with the initial values of variables."""
        self._has_reset = True

    def get_signature_list(self) -> dict[str, dict[str, list[str]]]:
        """Return the names of inputs and outputs of each signature of the file by its key."""
        return {
            one.key: {"inputs": sorted(one.inputs), "outputs": sorted(one.outputs)}
            for one in self._model.signatures
        }

    def get_signature_runner(
        self, signature_key: str | None = None
    ) -> Callable[..., dict[str, Array]]:
        """Return a function that runs a signature: inputs by name to a dictionary of outputs.

        Raises
        ------
        RuntimeInputError
            INPUT001 if the file has no such signature, or several and no key is given.
        """
        known = {one.key: one for one in self._model.signatures}
        if signature_key is None and len(known) == 1:
            (signature_key,) = known
        if signature_key is None or signature_key not in known:
            refuse_argument(
                "the signature is unknown", signature_key, ", ".join(known) or "no signature"
            )
        signature = known[signature_key]

        def run(**inputs: npt.ArrayLike) -> dict[str, Array]:
            if inputs.keys() != signature.inputs.keys():
                refuse_argument(
                    "the inputs are wrong", ", ".join(inputs), ", ".join(signature.inputs)
                )
            self.allocate_tensors()
            for name, value in inputs.items():
                self.set_tensor(signature.inputs[name].index, value)
            self.invoke()
            return {key: self.get_tensor(one.index) for key, one in signature.outputs.items()}

        return run

    def _list_results(self, report: RunReport) -> dict[int, Array]:
        """Return the results of a run by the index of the tensor."""
        found = zip(self._model.outputs, self._bundle.metadata.user_outputs, strict=True)
        results = {one.index: _convert(report.outputs[own.name], one) for one, own in found}
        if not self._keeps_all:
            return results
        layers = {one.name: one for one in self._bundle.metadata.layers}
        operators = {one.index: one for one in self._model.operators}
        for row in self._bundle.metadata.operators:
            layer = layers.get(row.layers[-1]) if row.layers else None
            operator = operators.get(int(row.node.split(" ", 1)[0]))
            if layer is None or operator is None:  # computed with another one, or on variables
                continue
            target = operator.outputs[0]
            values = report.layer_outputs[make_layer_key(layer)]
            results.setdefault(target.index, _convert(values, target))
        return results


def _convert(values: Array, tensor: TFLiteTensor) -> Array:
    """Return results in the type and shape that the file gives a tensor."""
    if tensor.dtype == "uint8" and values.dtype == np.int8:
        values = (values.view(np.uint8) ^ 0x80).astype(np.uint8)
    return values.reshape(tensor.shape)


def _describe(tensor: TFLiteTensor) -> dict[str, Any]:
    """Return the details of a tensor as LiteRT gives them."""
    shape = np.array(tensor.shape, np.int32)
    is_single = tensor.scales.size == 1
    quantization = (float(tensor.scales[0]), int(tensor.zero_points[0])) if is_single else (0.0, 0)
    return {
        "name": tensor.name,
        "index": tensor.index,
        "shape": shape,
        "shape_signature": np.array(tensor.shape_signature, np.int32),
        "dtype": np.dtype(tensor.dtype if tensor.dtype != "int4" else "int8").type,
        "quantization": quantization,
        "quantization_parameters": {
            "scales": tensor.scales.copy(),
            "zero_points": tensor.zero_points.astype(np.int32),
            "quantized_dimension": tensor.axis,
            "block_size": 0,
        },
        "sparsity_parameters": {},
    }
