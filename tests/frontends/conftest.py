"""Fixtures with one-operation models of TFLite and ONNX and their recorded results."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from frontend_cases import Operations, RecordedModel


def index_cases(archive: Path, ending: str, folder: Path) -> Operations:
    """Return a function that lists the recorded cases of an operation such as ``ADD_int8``."""
    with np.load(archive) as file:
        arrays = {key: file[key] for key in file.files}
    keys = [key.removesuffix("/model") for key in arrays if key.endswith("/model")]

    def cases(kind: str) -> list[RecordedModel]:
        found = []
        for key in (key for key in keys if key.rpartition("/")[0] == kind):
            model = folder / (key.replace("/", "_") + ending)
            model.write_bytes(arrays[f"{key}/model"].tobytes())
            inputs, outputs = (
                [arrays[f"{key}/{what}{i}"] for i in range(9) if f"{key}/{what}{i}" in arrays]
                for what in ("in", "out")
            )
            found.append(RecordedModel(key, model, inputs, outputs))
        return found

    return cases


@pytest.fixture(scope="session")
def operations(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Operations:
    """Return recorded operations of TFLite's reference kernels."""
    archive = shared / "golden" / "frontends" / "tflite_ops.npz"
    return index_cases(archive, ".tflite", tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="session")
def onnx_operations(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Operations:
    """Return recorded operations of ONNX Runtime."""
    archive = shared / "golden" / "frontends" / "ort_ops.npz"
    return index_cases(archive, ".onnx", tmp_path_factory.mktemp("models"))
