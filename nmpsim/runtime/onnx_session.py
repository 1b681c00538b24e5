"""Session with the interface of ONNX Runtime that runs models on the simulated device."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy.typing as npt

from nmpsim import session
from nmpsim.arrays import Array
from nmpsim.config import DeviceConfig
from nmpsim.diagnostics import Place
from nmpsim.extras import require_extra
from nmpsim.frontends.imported_model import ImportOptions
from nmpsim.records import frozen
from nmpsim.report.data import RunReport
from nmpsim.runtime.errors import errors_as_value_errors, refuse_argument

PROVIDER = "NmpsimExecutionProvider"
"""Name of the simulated device among ONNX Runtime's execution providers."""


class GraphOptimizationLevel(enum.IntEnum):
    """ONNX Runtime's levels of graph optimization, which have no effect here."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class SessionOptions:
    """Options of ONNX Runtime, which scripts may set and which have no effect here."""

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Accept an entry of the configuration without effect."""


@frozen
class NodeArg:
    """Input or output of a model: name, shape and type, as in ONNX Runtime."""

    name: str
    shape: list[int | str | None]
    """Sizes; the name of a dimension, or None, if the model leaves its size open."""
    type: str
    """ONNX type such as ``tensor(float)``."""


@frozen
class SessionModelMetadata:
    """Metadata of an ONNX model, as in ONNX Runtime."""

    graph_name: str
    producer_name: str
    domain: str
    description: str
    version: int
    custom_metadata_map: dict[str, str]


class InferenceSession:
    """Session that runs an ONNX model, with the interface of ``onnxruntime.InferenceSession``.

    Parameters
    ----------
    path_or_bytes : path-like or bytes
        ONNX file, or its contents.
    sess_options, providers, provider_options, **kwargs
        Accepted for compatibility, without effect.
    device : DeviceConfig, optional
        The simulated device; by default :func:`nmpsim.default_device`.

    Raises
    ------
    UserError
        FILE001; PKG001 without the package onnx; MODEL, LIR and COMP codes for a model that the
        device does not support.
    """

    report: RunReport | None = None
    """Report of the last run; None before the first run."""

    def __init__(
        self,
        path_or_bytes: session.FilePath | bytes | bytearray | memoryview,
        sess_options: SessionOptions | None = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Any] | None = None,
        *,
        device: DeviceConfig | None = None,
        **kwargs: Any,
    ) -> None:
        with require_extra("onnx", "ONNX models need the package onnx"):
            from nmpsim import onnx_backend
            from nmpsim.frontends.onnx.model import load_model, parse_model

        place = Place()  # a model in memory must not read files as external data
        if isinstance(path_or_bytes, bytes | bytearray | memoryview):
            model = parse_model(bytes(path_or_bytes), Place("<bytes>"))
        else:
            place = Place(str(path_or_bytes))
            model = load_model(Path(path_or_bytes))
        self._model = model
        self._prepared = onnx_backend.PreparedModel(model, ImportOptions(), place, device)
        stored = {one.name for one in model.graph.initializer}
        self._inputs = [_make_arg(one) for one in model.graph.input if one.name not in stored]
        self._outputs = [_make_arg(one) for one in model.graph.output]

    def get_inputs(self) -> list[NodeArg]:
        """Return the inputs of the model in their order."""
        return list(self._inputs)

    def get_outputs(self) -> list[NodeArg]:
        """Return the outputs of the model in their order."""
        return list(self._outputs)

    def get_providers(self) -> list[str]:
        """Return the name of the simulated device as the list of execution providers."""
        return get_available_providers()

    def get_modelmeta(self) -> SessionModelMetadata:
        """Return the metadata of the model."""
        model = self._model
        return SessionModelMetadata(
            model.graph.name,
            model.producer_name,
            model.domain,
            model.doc_string,
            model.model_version,
            {one.key: one.value for one in model.metadata_props},
        )

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, npt.ArrayLike],
        run_options: object = None,
    ) -> list[Array]:
        """Run the model and return the named outputs.

        Parameters
        ----------
        output_names : sequence of str or None
            Names of the outputs to return; None returns all of them in the order of the model.
        input_feed : mapping of str to array_like
            Array of each input by name.
        run_options
            Accepted for compatibility, without effect.

        Raises
        ------
        RuntimeInputError
            INPUT001 for a wrong name; INPUT002 for a wrong shape or type.
        UserError
            MODEL, LIR and COMP codes for a model that the device does not support.
        RuntimeError
            If the run ends in a trap.
        """
        known = [one.name for one in self._outputs]
        for name in output_names or ():
            if name not in known:
                refuse_argument("the model has no such output", name, ", ".join(known))
        with errors_as_value_errors():
            values = self._prepared.run(input_feed)
        self.report = self._prepared.report
        results = dict(zip(known, values, strict=True))
        return [results[name] for name in (output_names or known)]


def get_available_providers() -> list[str]:
    """Return the name of the simulated device as the list of execution providers."""
    return [PROVIDER]


def get_device() -> str:
    """Return ``CPU``: models do not run on a GPU."""
    return "CPU"


def _make_arg(info: Any) -> NodeArg:
    """Return an input or output of an ONNX model as ONNX Runtime describes it."""
    import onnx

    tensor = info.type.tensor_type
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type).name
    sizes = [one.dim_param or (one.dim_value if one.HasField("dim_value") else None)
             for one in tensor.shape.dim]  # fmt: skip
    return NodeArg(info.name, sizes, f"tensor({_ONNX_NAMES.get(dtype, dtype)})")


_ONNX_NAMES = {"float32": "float", "float64": "double"}
"""Type of NumPy -> name of the element type in ONNX Runtime, if they differ."""
