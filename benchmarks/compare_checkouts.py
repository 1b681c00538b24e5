"""Say in what the programs of two checkouts differ: bundles, outputs, cycles, saturation, reports.

    python benchmarks/compare_checkouts.py OTHER ../shared/models ../shared/lir

Every model and LIR text below the folders is compiled by this checkout and by OTHER, LIR in every
arithmetic profile, and runs on the same random inputs. A line is printed for each difference; the
exit status is 1 if there is one.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
MODELS = ("*.tflite", "*.onnx", "*.lir.txt")
LIR = ".lir.txt"
OF_THE_HOST = ("seconds", "host_seconds", "host", "throughput")
"""Fields of a report that two runs of one program have otherwise."""


def programs(folders: list[Path]) -> Iterator[tuple[Path, str | None]]:
    """Models, and LIR texts in every profile, but LIR from before Glow lowered it."""
    from nmpsim.isa.profiles import NUMERICS_NAMES

    found = {path for folder in folders for ending in MODELS for path in folder.rglob(ending)}
    for path in sorted(found):
        if ".before_opt." not in path.name:
            yield from ((path, name) for name in (NUMERICS_NAMES if is_lir(path) else (None,)))


def is_lir(path: Path) -> bool:
    """Whether a file is LIR text, with its constants in an ``.npz`` next to it."""
    return path.name.endswith(LIR)


def outcome(path: Path, numerics: str | None) -> dict[str, Any]:
    """Flat digests of what compiling and running a program gives, or why it is refused."""
    import numpy as np

    import nmpsim
    from nmpsim.lir.nodes import ELEM_DTYPES
    from nmpsim.report.json import to_json

    weights = path.with_name(path.name.removesuffix(LIR) + ".npz") if is_lir(path) else None
    rng = np.random.default_rng(0)
    try:
        compiled = nmpsim.compile(path, weights, numerics=numerics)
        inputs = {}
        for tensor in compiled.bundle.metadata.inputs:
            own = ELEM_DTYPES[tensor.elem]
            high = np.iinfo(own).max if own.kind in "iu" else 1
            inputs[tensor.name] = (rng.random(tensor.shape) * high).astype(own)
        report = nmpsim.Device(threads=1).run(compiled.bundle, inputs, save_layers=True)
    except nmpsim.UserError as error:
        return {"refused": " ".join(str(error).replace(str(path.parent), "").split())}
    found = {"bundle": digest(compiled.image)}
    found |= {f"layer output {key}": digest(v.tobytes()) for key, v in report.layer_outputs.items()}
    for key, value in to_json(report).items():
        if key == "layers":
            for layer in value:
                found |= {f"{layer['name']} {field}": digest(layer[field]) for field in layer}
        elif key not in OF_THE_HOST:
            found[key] = digest(value)
    return found


def digest(data: Any) -> str:
    """Bytes, or what JSON can say, in few characters."""
    raw = data if isinstance(data, bytes) else json.dumps(data, sort_keys=True).encode()
    is_short = raw is not data and len(raw) <= 40
    return raw.decode() if is_short else hashlib.sha256(raw).hexdigest()[:16]


def of_checkout(checkout: Path, folders: list[Path]) -> subprocess.Popen[str]:
    """Start a process that prints the outcome of each program as a line of JSON."""
    words = [sys.executable, __file__, "--print", *map(str, folders)]
    environment = os.environ | {"PYTHONPATH": str(checkout)}
    return subprocess.Popen(
        words, env=environment, cwd=checkout, stdout=subprocess.PIPE, text=True, encoding="utf-8"
    )


def main() -> int:
    """Compare; in the process of a checkout, print its outcomes."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("other", type=Path, nargs="?", help="folder of the other checkout")
    parser.add_argument("folders", type=Path, nargs="+", help="where models and LIR texts are")
    parser.add_argument("--print", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    folders = [folder.resolve() for folder in arguments.folders]
    if arguments.print:  # all arguments are folders; one alone is not taken for OTHER
        given = [arguments.other.resolve()] if arguments.other else []
        for path, numerics in programs([*given, *folders]):
            print(json.dumps([f"{path} {numerics or ''}", outcome(path, numerics)]), flush=True)
        return 0
    processes = [of_checkout(one, folders) for one in (ROOT, arguments.other.resolve())]
    count = differences = 0
    for lines in zip(*(process.stdout or () for process in processes), strict=True):
        (name, ours), (other, theirs) = map(json.loads, lines)
        assert name == other, "the checkouts know different profiles"
        count += 1
        for key in [key for key in {**theirs, **ours} if ours.get(key) != theirs.get(key)]:
            differences += 1
            print(f"{name}: {key}: {theirs.get(key, 'none')} before, {ours.get(key, 'none')} now")
    failed = any(process.wait() for process in processes)
    print(f"{count} programs, {differences} differences")
    return 1 if differences or failed else 0


if __name__ == "__main__":
    sys.exit(main())
