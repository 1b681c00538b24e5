"""A model file that its reference runtime runs on the inputs of a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import attrs
import numpy as np

from nmpsim.analysis.difference import dequantize_values
from nmpsim.analysis.matching import StoredTensor, list_layer_tensors, make_stored_tensor
from nmpsim.arrays import Array, Arrays
from nmpsim.bundle.metadata import Metadata, Tensor, is_same_shape
from nmpsim.diagnostics import fail, list_alternatives
from nmpsim.frontends import find_front_end
from nmpsim.input_files import read_first_bytes
from nmpsim.lir.nodes import ELEM_DTYPES
from nmpsim.references.runtime import (
    NO_LIMITS,
    ProcessLimits,
    ReferenceInput,
    ReferenceRuntime,
    host_saturates_pairs,
)
from nmpsim.references.runtime_process import RuntimeProcess

RuntimeLoader = Callable[[Path], ReferenceRuntime]


def _import_litert(metadata: Metadata) -> RuntimeLoader:
    from nmpsim.references.litert import LiteRTRuntime

    return LiteRTRuntime


def _import_onnx_runtime(metadata: Metadata) -> RuntimeLoader:
    from nmpsim.references.onnx_runtime import OnnxRuntime

    return OnnxRuntime


def _import_pytorch(metadata: Metadata) -> RuntimeLoader:
    from nmpsim.references.pytorch import TorchRuntime

    return partial(TorchRuntime, engine=_find_torch_engine(metadata))


PYTORCH = "PyTorch"
RUNTIMES: dict[str, Callable[[Metadata], RuntimeLoader]] = {
    "TFLite": _import_litert,
    "ONNX": _import_onnx_runtime,
    PYTORCH: _import_pytorch,
}
"""Model format -> function that imports its runtime, and returns the function that loads a file."""
_PYTORCH_SUFFIXES = (".pt", ".pt2", ".pth")


def _find_torch_engine(metadata: Metadata) -> str | None:
    """Return the engine of PyTorch whose arithmetic the program follows, or None if none is."""
    from nmpsim.frontends.torch.recording import ENGINE_PROFILES

    own = {metadata.numerics, *(layer.numerics for layer in metadata.layers)}
    used = [engine for engine, profile in ENGINE_PROFILES.items() if profile in own]
    # The engine x86 computes convolutions as onednn and other operations as fbgemm.
    mixed = {"fbgemm", "onednn"} <= set(used)
    return "x86" if mixed else next(iter(used), None)


def is_pytorch_file(path: Path) -> bool:
    """Return whether a file is an archive with a suffix of PyTorch's files."""
    return path.suffix.lower() in _PYTORCH_SUFFIXES and read_first_bytes(path, 2) == b"PK"


def find_reference_format(path: Path) -> str | None:
    """Return the format of a model file that a reference runtime can run, or None for other files.

    Raises UserError (MODEL001) for a model in another format.
    """
    if is_pytorch_file(path):
        return PYTORCH
    front_end = find_front_end(path)
    return None if front_end is None else front_end.name


@attrs.frozen(eq=False)
class ReferenceRun:
    """Run of a reference model: results of its operations, and its outputs for several settings."""

    tensors: tuple[StoredTensor, ...]
    """Results of the model's operations in the order of execution."""
    outputs: Arrays
    """Output of the program -> its values in the model's type."""
    variants: Mapping[str, Arrays] = attrs.field(factory=dict)
    """Other settings of the runtime -> outputs of the program with these settings."""
    saturates_pairs: bool = False
    """Whether the runtime saturates sums of two products of 8 bits on this host."""

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys of the result tensors: their names, in the order of execution."""
        return tuple(one.name for one in self.tensors)

    def read(self, key: str) -> Array:
        """Read the values of the first result tensor with the name ``key``."""
        values = next(one for one in self.tensors if one.name == key).load()
        return values.array.reshape(values.shape)


class LiveReference:
    """Reference model, loaded in its runtime, that runs on the inputs of a program."""

    def __init__(self, runtime: ReferenceRuntime, path: Path, metadata: Metadata) -> None:
        self.runtime, self.path, self._metadata = runtime, path, metadata
        self._sources = self._pair_inputs()
        self._float_names = frozenset(
            name
            for one in list_layer_tensors(metadata)
            if one.dtype is not None and one.dtype.kind == "f"
            for name in (one.name, *one.source_names)
        )

    def run(self, inputs: Arrays, *, has_variants: bool = False) -> ReferenceRun:
        """Convert the program's inputs to the model's types, and run the model on them.

        Parameters
        ----------
        inputs : mapping of str to array
            Inputs of the program by name, as ``prepare_inputs`` returns them.
        has_variants : bool
            Whether to run the model with other settings of the runtime, too.

        Raises
        ------
        UserError
            REF001 if the runtime fails or its model has inputs of other types.
        """
        given = {
            source.name: self._convert_input(tensor, inputs[tensor.name], source)
            for tensor, source in self._sources
        }
        tensors = self.runtime.run(given, self._float_names)
        return ReferenceRun(
            tuple(make_stored_tensor(name, values) for name, values in tensors.items()),
            self._pair_outputs(tensors),
            {
                name: self._pair_outputs(outputs)
                for name, outputs in self.runtime.run_variants(given).items()
            }
            if has_variants
            else {},
            self.runtime.multiplies_pairs and host_saturates_pairs(),
        )

    def _pair_outputs(self, tensors: Arrays) -> dict[str, Array]:
        """Pair program outputs with model outputs by name, else by order; return their values."""
        own, theirs = self._metadata.user_outputs, self.runtime.output_names
        names = {one.name: one.name for one in own}
        if len(own) == len(theirs) and not any(name in theirs for name in names):
            names = dict(zip(names, theirs, strict=True))
        return {
            one.name: tensors[names[one.name]].reshape(one.shape)
            for one in own
            if names[one.name] in tensors
            and is_same_shape(tensors[names[one.name]].shape, one.shape)
        }

    def _pair_inputs(self) -> list[tuple[Tensor, ReferenceInput]]:
        """Pair the inputs of program and model by name, or by order if no name is equal."""
        states = {one.name for one in self._metadata.states}
        own = [one for one in self._metadata.inputs if one.name not in states]
        theirs = self.runtime.inputs
        by_name = {one.name: one for one in theirs}
        if {one.name for one in own} == by_name.keys():
            return [(one, by_name[one.name]) for one in own]
        if len(own) != len(theirs) or any(one.name in by_name for one in own):
            raise fail(
                "REF001",
                "the reference has other inputs than the program",
                place=self.path,
                found=list_alternatives(by_name) if by_name else "no inputs",
                expected=list_alternatives(one.name for one in own) if own else "no inputs",
                hint="Pass the model from which the program was compiled.",
            )
        return list(zip(own, theirs, strict=True))

    def _convert_input(self, tensor: Tensor, stored: Array, source: ReferenceInput) -> Array:
        """Convert stored values of a program's input to the type of the model's input."""
        shape = stored.shape if source.shape is None else source.shape
        pairs = zip(shape, stored.shape, strict=False)
        if len(shape) != stored.ndim or any(own > 1 and own != size for own, size in pairs):
            raise fail(
                "REF001",
                f"input {source.name!r} of the reference has another shape than the program's",
                place=self.path,
                found="x".join(map(str, shape)),
                expected="x".join(map(str, stored.shape)),
                hint="Pass the model from which the program was compiled.",
            )
        user = self._metadata.user_tensor(tensor)
        values = stored
        if ELEM_DTYPES[user.elem] != stored.dtype:  # the user's values are unsigned
            offset = (user.offset or 0) - (tensor.offset or 0)
            values = (stored.astype(np.int32) + offset).astype(ELEM_DTYPES[user.elem])
        if source.dtype is None or values.dtype == source.dtype:
            return values
        if source.dtype == np.float32 and tensor.scale is not None:
            real = dequantize_values(stored, tensor.elem, tensor.scale, tensor.offset)
            return real.astype(np.float32)
        raise fail(
            "REF001",
            f"input {source.name!r} of the reference has another type than the program's input",
            place=self.path,
            found=str(source.dtype),
            expected=str(values.dtype),
            hint="Pass the model from which the program was compiled.",
        )


def open_reference(
    path: Path, metadata: Metadata, limits: ProcessLimits = NO_LIMITS
) -> LiveReference | None:
    """Open a model file in its reference runtime, or return None if the file is not a model.

    Parameters
    ----------
    path : Path
        The file; its first bytes determine the format.
    metadata : Metadata
        Description of the program whose layers are compared.
    limits : ProcessLimits
        Limits of the runtime's process.

    Raises
    ------
    UserError
        MODEL001 for an unsupported model format, PKG001 if the runtime is not installed, REF001 if
        the runtime cannot load the file, crashes or exceeds a limit, or the model has other inputs.
    """
    found = find_reference_format(path)
    if found is None:
        return None
    runtime = RuntimeProcess(RUNTIMES[found](metadata), path, limits)
    return LiveReference(runtime, path, metadata)
