"""One-operation models of TFLite with what its reference kernels answered."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from frontend_cases import Recorded


@pytest.fixture(scope="session")
def operations(
    shared: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], list[Recorded]]:
    """The recorded cases of an operation and its types, such as ``ADD_int8``."""
    with np.load(shared / "golden" / "frontends" / "tflite_ops.npz") as file:
        archive = {key: file[key] for key in file.files}
    folder = tmp_path_factory.mktemp("models")
    keys = [key.removesuffix("/model") for key in archive if key.endswith("/model")]

    def cases(kind: str) -> list[Recorded]:
        found = []
        for key in (key for key in keys if key.rpartition("/")[0] == kind):
            model = folder / (key.replace("/", "_") + ".tflite")
            model.write_bytes(archive[f"{key}/model"].tobytes())
            inputs, outputs = (
                [archive[f"{key}/{what}{i}"] for i in range(9) if f"{key}/{what}{i}" in archive]
                for what in ("in", "out")
            )
            found.append(Recorded(key, model, inputs, outputs))
        return found

    return cases
