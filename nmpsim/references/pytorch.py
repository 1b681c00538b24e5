"""Run PyTorch files, exported or TorchScript, with every tensor kept."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np

from nmpsim.arrays import Array, Arrays
from nmpsim.diagnostics import fail
from nmpsim.extras import require_extra
from nmpsim.frontends.imported_model import ImportedModel
from nmpsim.frontends.torch.recording import ModelRecording
from nmpsim.lir.names import UniqueNames
from nmpsim.references.runtime import ReferenceInput, translate_runtime_errors

_RUNTIME = "PyTorch"


class TorchRuntime:
    """PyTorch runtime that has loaded an exported program or a TorchScript module.

    Parameters
    ----------
    path : Path
        The file, written by ``torch.export.save`` or ``torch.jit.save``.
    engine : str, optional
        Quantized engine that computes the layers; by default PyTorch's default engine.
    """

    multiplies_pairs = True
    output_names: tuple[str, ...] = ()
    """Names of outputs are known after a run only: those that ``nmpsim.from_torch`` gives them."""

    def __init__(self, path: Path, engine: str | None = None) -> None:
        """Load a file; raise UserError (MODEL001, PKG001, REF001) if that is not possible."""
        with require_extra("torch", "PyTorch models run in torch", place=path):
            import torch
        self._path, self._torch, self._names = path, torch, UniqueNames()
        with translate_runtime_errors(_RUNTIME, path):
            if engine is not None:
                torch.backends.quantized.engine = engine
            self._engine = str(torch.backends.quantized.engine)
            kind = _find_file_kind(path)
            if kind == "exported":
                program = _load_exported_program(torch, path)
                self._model, self.inputs = program.module(), _list_exported_inputs(program)
            elif kind == "script":
                self._model = torch.jit.load(path, map_location="cpu").eval()
                self.inputs = _list_script_inputs(self._model)
        if not kind:
            raise fail(
                "MODEL001",
                "the PyTorch file contains no model that runs without its Python code",
                place=path,
                found="a pickled module or its weights",
                expected="an exported program or a TorchScript module",
                hint="Write the model with torch.export.save or torch.jit.save.",
            )
        self.name = f"{_RUNTIME} {torch.__version__}, engine {self._engine}"

    def run(self, inputs: Arrays, float_names: Collection[str]) -> dict[str, Array]:
        """Run the model; return the results of its operations by name, in the order of execution.

        Results have the names of the layers that ``nmpsim.from_torch`` makes of the operations.
        """
        from nmpsim.frontends.torch.recorder import record_model

        with translate_runtime_errors(_RUNTIME, self._path):
            examples = [
                self._torch.from_numpy(np.ascontiguousarray(inputs[one.name]))
                for one in self.inputs
            ]
            recording = record_model(self._model, examples, self._engine, keeps_values=True)
        return _name_results(recording)

    def run_variants(self, inputs: Arrays) -> dict[str, Arrays]:
        """Return {}, because the program determines the settings of PyTorch."""
        return {}


def import_exported_program(path: Path) -> ImportedModel:
    """Import a file of ``torch.export.save`` with the input shapes with which it was exported.

    Raises
    ------
    UserError
        MODEL001 for another PyTorch file, MODEL002 for an unsupported model, PKG001 without
        PyTorch, REF001 for a damaged file.
    """
    from nmpsim.frontends.torch import import_torch_module

    with require_extra("torch", "PyTorch models need torch", place=path):
        import torch
    with translate_runtime_errors(_RUNTIME, path):
        is_exported = _find_file_kind(path) == "exported"
        program = _load_exported_program(torch, path) if is_exported else None
    if program is None:
        raise fail(
            "MODEL001",
            "the PyTorch file is not an exported program",
            place=path,
            found="a TorchScript module, or a pickled module or its weights",
            expected="an exported program",
            hint="Write the model with torch.export.save, or pass a bundle with --reference.",
        )
    examples = [np.zeros(one.shape or (), one.dtype) for one in _list_exported_inputs(program)]
    return import_torch_module(program.module(), tuple(map(torch.from_numpy, examples)))


def _load_exported_program(torch: Any, path: Path) -> Any:
    """Load a file of ``torch.export.save``, which must contain tensors only."""
    _register_pt2e_operators()
    with _refuse_pickled_objects(torch):
        return torch.export.load(path)


def _register_pt2e_operators() -> None:
    """Register the operators ``quantized_decomposed`` of models that PT2E quantized, if known."""
    for module in ("torch.ao.quantization.fx._decomposed", "torchao.quantization.pt2e"):
        with suppress(ImportError):
            import_module(module)
            return


@contextmanager
def _refuse_pickled_objects(torch: Any) -> Iterator[None]:
    """In a ``with`` block, let ``torch.load`` read tensors only, because objects can run code."""
    load = torch.load
    torch.load = lambda *args, **options: load(*args, **{**options, "weights_only": True})
    try:
        yield
    finally:
        torch.load = load


def _find_file_kind(path: Path) -> str:
    """Return "exported" or "script" by the members of the archive, or "" for another file."""
    with ZipFile(path) as archive:
        members = {name.partition("/")[2] for name in archive.namelist()}
    if "archive_format" in members:
        return "exported"
    return "script" if "constants.pkl" in members else ""


def _list_exported_inputs(program: Any) -> tuple[ReferenceInput, ...]:
    names = program.graph_signature.user_inputs
    values = {node.name: node.meta.get("val") for node in program.graph.nodes}
    return tuple(
        ReferenceInput(
            name,
            np.dtype(str(values[name].dtype).removeprefix("torch.")),
            tuple(size if isinstance(size, int) else 0 for size in values[name].shape),
        )
        for name in names
    )


def _list_script_inputs(model: Any) -> tuple[ReferenceInput, ...]:
    """Return the inputs of a TorchScript module, which declares neither types nor shapes."""
    _, *arguments = model.forward.schema.arguments
    return tuple(ReferenceInput(one.name, None, None) for one in arguments)


def _name_results(recording: ModelRecording) -> dict[str, Array]:
    """Return the values of the results of a recorded run, by the names of imported layers."""
    names = UniqueNames()
    for name, _ in recording.inputs:
        names.make_unique(name)
    outputs = {tensor.number: names.make_unique(name) for name, tensor in recording.outputs}
    results = {}
    for call in recording.calls:
        for result in call.results:
            own = names.make_unique(call.name or call.operation.rpartition(".")[2])
            if result.values is not None:
                results[outputs.get(result.number, own)] = result.values
    return results
