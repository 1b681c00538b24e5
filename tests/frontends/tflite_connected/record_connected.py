"""Record results of LiteRT's reference kernels that depend on a factor's rounding to 31 bits.

Run by hand where ai-edge-litert 2.3.0 and the test extra are installed:
``PYTHONPATH=tests/frontends python tests/frontends/tflite_connected/record_connected.py``.
Random Int16 layers are searched for sums whose product with the float64 factor, and with the 31
bits of it that TFLite's other kernels take, are rounded to different integers.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from tflite_files import connected_layer

ROWS, INS, OUTS = 400, 12, 64
CASES = 24
Array = npt.NDArray[Any]


def round_half_away(product: Array) -> Array:
    """Round to the nearest integers, halves away from zero."""
    whole = np.floor(np.abs(product))
    return (np.sign(product) * (whole + (np.abs(product) - whole >= 0.5))).astype(np.int64)


def round_to_31_bits(factor: float) -> float:
    """Round a factor to 31 bits as TFLite's QuantizeMultiplier does."""
    fraction, exponent = np.frexp(factor)
    return float(np.ldexp(np.floor(fraction * 2**31 + 0.5), exponent - 31))


def layers() -> Iterator[dict[str, Array]]:
    """Yield input rows and filters of one output for which both factors give other results."""
    rng = np.random.default_rng(7)
    while True:
        x = rng.integers(-32768, 32768, (ROWS, INS)).astype(np.int16)
        w = rng.integers(-127, 128, (OUTS, INS)).astype(np.int8)
        bias = rng.integers(-(10**5), 10**5, OUTS)
        sums = x.astype(np.int64) @ w.T.astype(np.int64) + bias
        sx, sw = np.float32(rng.uniform(1e-4, 1e-2)), np.float32(rng.uniform(1e-3, 1e-1))
        sy = np.float32(float(sx) * float(sw) * np.abs(sums).max() / 32768 * rng.uniform(0.9, 1.5))
        factor = float(sx) * float(sw) / float(sy)
        differ = round_half_away(sums * factor) != round_half_away(sums * round_to_31_bits(factor))
        for row, out in np.argwhere(differ & (np.abs(sums * factor) < 32767)):
            scales = np.array([sx, sw, sy])
            yield {"x": x[row], "w": w[out], "bias": bias[out : out + 1], "scales": scales}


def run_reference_kernel(case: dict[str, Array]) -> Array:
    """Return the result of LiteRT's reference kernels."""
    model = connected_layer(case["w"][None], case["bias"], case["scales"])
    interpreter = Interpreter(
        model_content=model, experimental_op_resolver_type=OpResolverType.BUILTIN_REF
    )
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], case["x"][None])
    interpreter.invoke()
    return interpreter.get_tensor(interpreter.get_output_details()[0]["index"])[0]


def main() -> None:
    found = list(islice(layers(), CASES))
    arrays = {key: np.stack([case[key] for case in found]) for key in found[0]}
    arrays["y"] = np.stack([run_reference_kernel(case) for case in found])
    np.savez_compressed(Path(__file__).with_name("connected.npz"), **arrays)


if __name__ == "__main__":
    main()
