"""Read recorded vectors: one dict of arrays per case or file."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import tflite

Array = np.ndarray[Any, Any]
Case = dict[str, Any]


def glow_cases(shared: Path, name: str) -> Iterator[Case]:
    """Yield the cases of a file of golden/glow."""
    return map(dict, _glow_cases(shared / "golden" / "glow" / name))


@cache
def _glow_cases(path: Path) -> list[Case]:
    z = np.load(path)
    found: list[Case] = [{} for _ in range(int(z["ncases"]))]
    for key in z.files:
        number, _, rest = key.partition(".")
        if rest:
            found[int(number)][rest] = z[key]
            found[int(number)][rest].flags.writeable = False
    return found


def torch_files(shared: Path, engine: str, kinds: set[str]) -> Iterator[Case]:
    """Yield the contents of golden/torch files of an engine, with ``meta`` decoded."""
    for path in sorted((shared / "golden" / "torch").glob(f"{engine}_*.npz")):
        z = np.load(path)
        case: Case = {name: z[name] for name in z.files}
        case["meta"] = json.loads(str(z["meta"]))
        if case["meta"]["kind"] in kinds:
            yield {**case, "name": path.name}


def near_ties() -> Iterator[Case]:
    """Yield the cases of near_ties/near_ties.npz (written by record_near_ties.py)."""
    return _recorded_here("near_ties")


def products() -> Iterator[Case]:
    """Yield the cases of products/products.npz (written by record_products.py)."""
    return _recorded_here("products")


def _recorded_here(name: str) -> Iterator[Case]:
    z = np.load(Path(__file__).parent / name / f"{name}.npz")
    found: dict[str, Case] = {}
    for key in z.files:
        number, name = key.split(".")
        found.setdefault(number, {})[name] = z[key].item() if z[key].dtype.kind in "U" else z[key]
    return iter(found.values())


def pair(value: Any) -> tuple[int, int]:
    """Return a size for both dimensions, given as one number or as two."""
    return (value, value) if isinstance(value, int) else (value[0], value[1])


_DTYPES = {
    tflite.TensorType.FLOAT32: np.dtype(np.float32),
    tflite.TensorType.INT32: np.dtype(np.int32),
    tflite.TensorType.INT64: np.dtype(np.int64),
    tflite.TensorType.INT16: np.dtype(np.int16),
    tflite.TensorType.INT8: np.dtype(np.int8),
    tflite.TensorType.UINT8: np.dtype(np.uint8),
}


class TfliteModel:
    """TFLite file with one subgraph, its tensors and its operators with their options."""

    def __init__(self, path: Path) -> None:
        self._model = tflite.Model.GetRootAsModel(path.read_bytes(), 0)
        self._graph = self._model.Subgraphs(0)

    def operators(self) -> list[tuple[str, Any, list[int], int]]:
        """Return name, options, inputs and output of each operator."""
        found = []
        for i in range(self._graph.OperatorsLength()):
            operator = self._graph.Operators(i)
            code = self._model.OperatorCodes(operator.OpcodeIndex())
            number = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
            inputs = [int(n) for n in operator.InputsAsNumpy() if n >= 0]
            name = tflite.opcode2name(number)
            found.append((name, _options(operator), inputs, int(operator.Outputs(0))))
        return found

    def tensor(self, number: int) -> Case:
        """Return dtype, shape, scale and zero of a tensor, and data if it is a constant."""
        tensor = self._graph.Tensors(number)
        quant, raw = tensor.Quantization(), self._model.Buffers(tensor.Buffer()).DataAsNumpy()
        dtype, shape = _DTYPES[tensor.Type()], tuple(tensor.ShapeAsNumpy().tolist())
        data = None if isinstance(raw, int) else np.frombuffer(raw.tobytes(), dtype).reshape(shape)
        scale, zero = (quant.ScaleAsNumpy(), quant.ZeroPointAsNumpy()) if quant else (1, 0)
        if np.size(scale) == 1:
            scale, zero = np.ravel(scale)[0], np.ravel(zero)[0]
        return {"dtype": dtype, "shape": shape, "scale": scale, "zero": zero, "data": data}


def _options(operator: Any) -> Any:
    kind = operator.BuiltinOptionsType()
    names = {n for n, v in vars(tflite.BuiltinOptions).items() if v == kind}
    table = operator.BuiltinOptions()
    if table is None or kind == 0:
        return None
    options = getattr(tflite, names.pop())()
    options.Init(table.Bytes, table.Pos)
    return options


def csv_numbers(path: Path) -> Array:
    """Return the integers of a file of golden/tflite_int16."""
    return np.loadtxt(path, delimiter=",", dtype=np.int64, ndmin=1)
