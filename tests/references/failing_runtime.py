"""Runtime that crashes, hangs or exhausts memory, as real ones do with damaged models."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from nmpsim.references.runtime import ReferenceInput

Tensors = dict[str, npt.NDArray[np.int8]]


class FailingRuntime:
    """Runtime that returns its input, or fails in the way that the name of the model says."""

    name = "failing runtime 1.0"
    multiplies_pairs = False
    output_names = ("y",)

    def __init__(self, path: Path) -> None:
        self.inputs = (ReferenceInput("x", np.dtype(np.int8), (2,)),)
        self._failure = path.stem

    def run(
        self, inputs: Mapping[str, npt.NDArray[np.int8]], float_names: Collection[str]
    ) -> Tensors:
        match self._failure:
            case "exit":
                os._exit(3)
            case "crash":
                os.kill(os.getpid(), signal.SIGSEGV)
            case "hang":
                time.sleep(100)
            case "memory":
                return {"y": np.ones(1 << 40, np.int8)}
        return {"y": inputs["x"]}

    def run_variants(self, inputs: Mapping[str, npt.NDArray[np.int8]]) -> dict[str, Tensors]:
        return {"defect": {"y": inputs["z"]}}
