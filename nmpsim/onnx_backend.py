"""ONNX backend: an implementation of ``onnx.backend.base.Backend`` on the simulated device.

    import nmpsim.onnx_backend as backend
    outputs = backend.prepare(onnx.load("network.onnx")).run([image])

Weights, scales, zero points and shapes must be known at compile time. If they are inputs of a
model, ``run`` compiles the model for their values, once for each set of values.
"""

from __future__ import annotations

import unittest
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import attrs
import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep, namedtupledict

from nmpsim import session
from nmpsim.arrays import Array, Arrays
from nmpsim.config import DeviceConfig
from nmpsim.diagnostics import Place, UserError, fail
from nmpsim.frontends.graph.nodes import Graph
from nmpsim.frontends.graph.problems import LoweringError
from nmpsim.frontends.imported_model import ImportedModel, ImportOptions
from nmpsim.frontends.module_builder import ModuleBuilder
from nmpsim.frontends.onnx import SUPPORTED_OPERATORS, lower_onnx_graph
from nmpsim.frontends.onnx.function_inlining import inline_functions
from nmpsim.frontends.onnx.model import get_dimensions, read_graph
from nmpsim.lir.names import make_legal_name
from nmpsim.report.data import RunReport

__all__ = [
    "NmpBackend",
    "PreparedModel",
    "UnsupportedModelError",
    "is_compatible",
    "prepare",
    "run_model",
    "run_node",
    "supports_device",
]

_MAX_PROGRAMS = 8
"""Limit for the cached programs of one model, one for each set of bound values."""
_PLACE = Place()
_TILING = "simple"
"""Tiling of models that are only run for their values, which compiles fast."""
_Key: TypeAlias = tuple[tuple[str, tuple[int, ...], bytes], ...]
"""Name and shape of each input, and the bytes of those that are constants of the program."""


class UnsupportedModelError(UserError, unittest.SkipTest):
    """Exception raised for a model that nmpsim cannot compile; unittest skips the test."""


@contextmanager
def _unsupported_as_skip() -> Iterator[None]:
    try:
        yield
    except UserError as error:
        raise UnsupportedModelError(error.diagnostics) from error


class PreparedModel(BackendRep):
    """ONNX model that is compiled on demand for each input shape and constant input."""

    report: RunReport | None = None
    """Report of the last run; None before the first run."""

    def __init__(
        self,
        model: onnx.ModelProto,
        options: ImportOptions,
        place: Place = _PLACE,
        device: DeviceConfig | None = None,
        tiling: str | None = None,
    ) -> None:
        self._model = model
        self._place = place
        self._device_config, self._tiling = device, tiling
        self._options = options
        self._device = session.Device(device)
        self._bound: frozenset[str] = frozenset()
        self.programs: dict[_Key, session.Compiled] = {}
        held = {one.name for one in model.graph.initializer}
        self._infos = {one.name: one for one in model.graph.input}
        self._needed = [name for name in self._infos if name not in held]
        shapes = [get_dimensions(self._infos[name]) for name in self._needed]
        with _unsupported_as_skip():
            graph = self._read_graph({})
            if not all(shape is not None and None not in shape for shape in shapes):
                return
            try:
                self._lower(graph)
            except LoweringError as error:
                if not error.unknown:  # no input values would help
                    raise

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Array, ...]:
        """Run the model and return its outputs; compile it first if the inputs require this.

        Parameters
        ----------
        inputs : mapping of str to array_like, or sequence of array_like
            An array for each input; those with an initializer may be left out.
        **kwargs
            Ignored; other backends take options.

        Returns
        -------
        tuple of ndarray
            Outputs in the model's order; also by name, ``result["y"]``.

        Raises
        ------
        UnsupportedModelError
            MODEL, LIR and COMP codes; INPUT002 for NaN, MEM001.
        UserError
            INPUT001, INPUT002.
        """
        values = self._check_inputs(inputs)
        program = self._program(values)
        given = {one.name: values[one.name] for one in program.bundle.metadata.user_inputs}
        with _unsupported_as_skip():  # NaN
            self.report = self._device.run(program, given)
        if self.report.trap is not None:
            raise RuntimeError(f"the run ended in a trap: {self.report.trap}")
        names = [one.name for one in self._model.graph.output]
        made: tuple[Array, ...] = namedtupledict("Outputs", names)(*self.report.outputs.values())
        return made

    def _check_inputs(self, inputs: Any) -> dict[str, Array]:
        """Return the inputs as arrays by name; raise UserError if one does not fit the model."""
        if not isinstance(inputs, Mapping):
            row = inputs if isinstance(inputs, Sequence) else [inputs]
            names = list(self._infos) if len(row) == len(self._infos) else self._needed
            if len(row) != len(names):
                expected = f"{len(names)} arrays: {', '.join(names)}"
                message = "the number of inputs is wrong"
                raise fail("INPUT001", message, found=f"{len(row)} arrays", expected=expected)
            inputs = dict(zip(names, row, strict=True))
        missing = [name for name in self._needed if name not in inputs]
        unknown = [name for name in inputs if name not in self._infos]
        if missing or unknown:
            message = f"the model has no input {unknown[0]!r}" if unknown else ""
            if missing:
                message = f"input {missing[0]!r} is missing"
            found, expected = ", ".join(inputs) or "no inputs", ", ".join(self._needed)
            raise fail("INPUT001", message, found=found, expected=expected)
        values = {}
        for name, value in inputs.items():
            array, info = np.asarray(value), self._infos[name]
            dtype = onnx.helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
            shape = get_dimensions(info)
            dims = array.shape if shape is None else shape
            is_fitting = len(dims) == array.ndim and all(
                size in (None, own) for size, own in zip(dims, array.shape, strict=True)
            )
            if array.dtype != dtype or not is_fitting:
                sizes = "any shape" if shape is None else [size or "any" for size in shape]
                found = f"{array.dtype} {list(array.shape)}"
                message = (
                    f"input {name!r} has the wrong {'shape' if array.dtype == dtype else 'type'}"
                )
                raise fail("INPUT002", message, found=found, expected=f"{dtype} {sizes}")
            values[name] = array
        return values

    def _program(self, values: Arrays) -> session.Compiled:
        """Return the compiled program for these values."""
        key = self._key(values)
        if key not in self.programs:
            with _unsupported_as_skip():
                imported = self._import(values)
                program = session.compile(imported, device=self._device_config, tiling=self._tiling)
            key = self._key(values)  # more may be bound than was known
            self.programs[key] = program
            if len(self.programs) > _MAX_PROGRAMS:
                del self.programs[next(iter(self.programs))]
        return self.programs[key]

    def _key(self, values: Arrays) -> _Key:
        constant = self._bound.union(values.keys() - set(self._needed))
        return tuple(
            (name, array.shape, array.tobytes() if name in constant else b"")
            for name, array in sorted(values.items())
        )

    def _import(self, values: Arrays) -> ImportedModel:
        """Import the model, binding those inputs whose values the lowering needs."""
        shapes = {name: values[name].shape for name in self._needed}
        graph = self._read_graph(shapes)
        given = {name: values[name] for name in values if name not in self._needed}
        while True:
            bound = {**given, **{name: values[name] for name in self._bound}}
            try:
                return self._lower(_with_values(graph, bound))
            except LoweringError as error:
                more = _inputs_of(graph, error.unknown) - self._bound
                if not more or len(self._bound | more) == len(self._needed):
                    raise
                self._bound |= more

    def _read_graph(self, shapes: Mapping[str, tuple[int, ...]]) -> Graph:
        return read_graph(inline_functions(self._model, SUPPORTED_OPERATORS), shapes, self._place)

    def _lower(self, graph: Graph) -> ImportedModel:
        return lower_onnx_graph(
            graph,
            ModuleBuilder(make_legal_name(self._model.graph.name), None),
            self._place,
            self._options,
        )


def _with_values(graph: Graph, values: Arrays) -> Graph:
    """Return the graph with some inputs as constants."""
    inputs = tuple(one for one in graph.inputs if one.name not in values)
    return attrs.evolve(graph, inputs=inputs, constants={**graph.constants, **values})


def _inputs_of(graph: Graph, names: frozenset[str]) -> frozenset[str]:
    """Return the inputs that tensors depend on."""
    wanted = set(names)
    for node in reversed(graph.nodes):
        if wanted.intersection(node.results):
            wanted.update(node.operands)
    return frozenset(one.name for one in graph.inputs if one.name in wanted)


class NmpBackend(Backend):
    """ONNX backend that runs models on the simulated device and its host."""

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Return whether nmpsim can compile a model, as far as this is known without inputs."""
        try:
            cls.prepare(model, device, **kwargs)
        except (UserError, onnx.checker.ValidationError):
            return False
        return True

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> PreparedModel:
        """Validate an ONNX model and return it as a :class:`PreparedModel`.

        Parameters
        ----------
        model : onnx.ModelProto
            The model with all its data.
        device : str
            A device that :meth:`supports_device` accepts.
        **kwargs
            ``integer_islands`` as for :func:`nmpsim.compile`; others are ignored.

        Raises
        ------
        UnsupportedModelError
            MODEL and LIR codes; ARG001 for another device.
        onnx.checker.ValidationError
            If the model is not valid.
        """
        _check_device(device)
        super().prepare(model, device, **kwargs)
        options = ImportOptions(integer_islands=kwargs.get("integer_islands"))
        return PreparedModel(model, options, tiling=_TILING)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Any = None,
        **kwargs: Any,
    ) -> tuple[Array, ...]:
        """Run one ONNX operator on the simulated device and return its outputs.

        Parameters
        ----------
        node : onnx.NodeProto
            The operator.
        inputs : sequence of array_like
            An array for each input that is not left out.
        device : str
            A device that :meth:`supports_device` accepts.
        outputs_info
            Ignored.
        **kwargs
            ``opset_version`` of ONNX's operators; those of :meth:`prepare`.

        Raises
        ------
        UnsupportedModelError, UserError, onnx.checker.ValidationError
            As for a model of this node.
        """
        _check_device(device)
        super().run_node(node, inputs, device, outputs_info, **kwargs)
        names = list(dict.fromkeys(name for name in node.input if name))
        row = inputs if isinstance(inputs, (list, tuple)) else [inputs]
        values = [np.asarray(one) for one in row]
        infos = [
            onnx.helper.make_tensor_value_info(name, _element_type(one), one.shape)
            for name, one in zip(names, values, strict=True)
        ]
        outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
        graph = onnx.helper.make_graph([node], node.op_type, infos, outputs)
        version = kwargs.get("opset_version", onnx.defs.onnx_opset_version())
        opsets = [onnx.helper.make_opsetid("", version), onnx.helper.make_opsetid(node.domain, 1)]
        model = onnx.helper.make_model(graph, opset_imports=opsets[: 2 if node.domain else 1])
        options = ImportOptions(integer_islands=kwargs.get("integer_islands"))
        return PreparedModel(model, options, tiling=_TILING).run(values)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Return whether a device name is ``CPU``, which stands for the simulated device."""
        return device.partition(":")[0] == "CPU"


def _check_device(device: str) -> None:
    if not NmpBackend.supports_device(device):
        with _unsupported_as_skip():
            raise fail("ARG001", "unknown device", found=f"device={device!r}", expected="'CPU'")


def _element_type(values: Array) -> int:
    return int(onnx.helper.np_dtype_to_tensor_dtype(values.dtype))


is_compatible = NmpBackend.is_compatible
prepare = NmpBackend.prepare
run_model = NmpBackend.run_model
run_node = NmpBackend.run_node
supports_device = NmpBackend.supports_device
