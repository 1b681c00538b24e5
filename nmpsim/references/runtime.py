"""Interface of the reference runtimes, and the errors that they share."""

from __future__ import annotations

import platform
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import attrs
import numpy as np

from nmpsim.arrays import Array, Arrays, Shape
from nmpsim.diagnostics import UserError, fail

EXTRA = "reference"
"""Extra of nmpsim's package metadata with the reference runtimes."""

DEFAULT_TIMEOUT = 600.0
"""Seconds in which a model must be loaded, and seconds for each run, unless a limit is given."""


@attrs.frozen
class ReferenceInput:
    """Input of a model as the reference runtime declares it."""

    name: str
    dtype: np.dtype[Any] | None
    """Element type; None if the file does not declare it."""
    shape: Shape | None
    """Shape in the file; an open dimension is 0 or less. None if the file does not declare it."""


@attrs.frozen
class ProcessLimits:
    """Limits of the process in which a reference runtime runs."""

    timeout: float | None = None
    """Seconds to load the model, and seconds for each run; ``DEFAULT_TIMEOUT`` if None."""
    max_memory: int | None = None
    """Bytes; None means the default memory limit."""


NO_LIMITS = ProcessLimits()


class ReferenceRuntime(Protocol):
    """Protocol of a runtime that has loaded a model file."""

    name: str
    """Runtime with its version and settings, for messages."""
    multiplies_pairs: bool
    """Whether its kernels saturate sums of two products on x86 processors without VNNI."""
    inputs: tuple[ReferenceInput, ...]
    output_names: tuple[str, ...]
    """Names of the model's outputs, in the order of the file; empty if known after a run only."""

    def run(self, inputs: Arrays, float_names: Collection[str]) -> Mapping[str, Array]:
        """Run the model; return the results of its operations by name, in order of execution.

        Parameters
        ----------
        inputs : mapping of str to array
            Inputs of the model by name.
        float_names : collection of str
            Names of float results to return. A runtime may leave out other float results, which it
            would have to compute in another way.
        """
        ...

    def run_variants(self, inputs: Arrays) -> Mapping[str, Arrays]:
        """Run the model with different runtime settings; return its outputs by settings and name.

        Returns
        -------
        mapping of str to mapping of str to array
            Settings as text -> outputs of the model by name.
        """
        ...


@contextmanager
def translate_runtime_errors(runtime: str, path: Path) -> Iterator[None]:
    """In a ``with`` block, convert a runtime's exceptions to UserError (REF001)."""
    try:
        yield
    except (UserError, MemoryError):
        raise
    except Exception as error:  # ONNX Runtime's exceptions have no common base class
        raise fail(
            "REF001",
            f"{runtime} cannot run the model",
            place=path,
            found=" ".join(f"{type(error).__name__}: {error}".split())[:300],
            expected=f"a model that {runtime} can run on these inputs",
            hint="Run the model in the runtime alone, or pass another model with --reference.",
        ) from error


_VNNI = ("avx512vnni", "avxvnni")


def host_saturates_pairs() -> bool:
    """Return whether this host is x86 without VNNI, on which kernels saturate pairs of products."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return False
    from llvmlite import binding

    try:
        features = binding.get_host_cpu_features()
    except RuntimeError:  # LLVM does not know this host
        return False
    return not any(features.get(name) for name in _VNNI)
