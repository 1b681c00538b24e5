"""ONNX's own backend tests on nmpsim: the table of docs/onnx.md.

    python benchmarks/onnx_backend.py [--only PATTERN] [--list]

Runs every case that the installed version of ``onnx`` brings: each passes, is refused with a code,
or is wrong. Exits with 1 if any is wrong. Cases that are files to download are left out.
Two cases of old versions are wrong themselves: counted as wrapped.
"""

from __future__ import annotations

import argparse
import re
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner

import nmpsim.onnx_backend as backend

WRAPPED = ("test_qlinearmatmul_2D_int8_float32", "test_qlinearmatmul_3D_int8_float32")
"""Up to onnx 1.18 at least, these expect results that wrap where the operator saturates."""
KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")


@attrs.frozen(eq=False)
class Outcome:
    """What became of a case."""

    kind: str
    name: str
    result: str
    """``passed``, ``refused``, ``wrong``, or ``wrapped``, which is wrong of onnx."""
    why: str
    places: frozenset[str]
    """Where it was computed: ``device``, ``host``."""


def cases(only: str) -> Iterator[tuple[str, Any]]:
    """Kind and case, of those that are here."""
    for kind in KINDS:
        for case in load_model_tests(kind=kind):
            if re.search(only, case.name) and (case.model is not None or case.model_dir):
                yield kind, case


def outcome(kind: str, case: Any) -> Outcome:
    """Run one case."""
    model = case.model or onnx.load(Path(case.model_dir) / "model.onnx")
    places: set[str] = set()
    try:
        prepared = backend.prepare(model)
        for inputs, expected in case.data_sets or recorded(Path(case.model_dir), model):
            made = prepared.run([_array(one) for one in inputs])
            Runner.assert_similar_outputs(
                [_array(one) for one in expected], list(made), case.rtol, case.atol
            )
            if prepared.report is not None:
                places |= {one.placement for one in prepared.report.layers}
    except backend.UnsupportedModelError as error:
        return Outcome(kind, case.name, "refused", error.diagnostics[0].found or "", frozenset())
    except Exception as error:  # whatever else it is, it is wrong
        why = f"{type(error).__name__}: {error}".strip()
        is_wrapped = case.name in WRAPPED and isinstance(error, AssertionError)
        return Outcome(kind, case.name, "wrapped" if is_wrapped else "wrong", why, frozenset())
    return Outcome(kind, case.name, "passed", "", frozenset(places))


def recorded(folder: Path, model: Any) -> Iterator[tuple[list[Any], list[Any]]]:
    """Return inputs and outputs of a case that is a folder of files."""
    for data in sorted(folder.glob("test_data_set*")):
        yield _loaded(data, "input", model.graph.input), _loaded(data, "output", model.graph.output)


def _loaded(data: Path, what: str, infos: Any) -> list[Any]:
    paths = (data / f"{what}_{i}.pb" for i in range(len(infos)))
    return [
        # Of another kind than a tensor are inputs of models that are refused.
        onnx.TensorProto.FromString(path.read_bytes()) if one.type.HasField("tensor_type") else None
        for path, one in zip(paths, infos, strict=True)
        if path.is_file()
    ]


def _array(one: Any) -> Any:
    return numpy_helper.to_array(one) if isinstance(one, onnx.TensorProto) else one


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="", help="cases whose name has this regular expression")
    parser.add_argument("--list", action="store_true", help="each case, and why it is refused")
    given = parser.parse_args()
    warnings.simplefilter("ignore")  # numpy's, while onnx makes its cases
    found = [outcome(kind, case) for kind, case in cases(given.only)]
    print(f"onnx {onnx.__version__}\n")
    print("| cases | passed | on the host only | refused | wrapped | wrong |")
    print("| --- | --- | --- | --- | --- | --- |")
    for kind in KINDS:
        own = [one for one in found if one.kind == kind]
        results = Counter(one.result for one in own)
        host = sum(one.places == {"host"} for one in own)
        numbers = (
            results["passed"],
            host,
            *(results[key] for key in ("refused", "wrapped", "wrong")),
        )
        print(f"| {kind} | {' | '.join(map(str, numbers))} |")
    for one in found:
        if given.list or one.result == "wrong":
            where = " and ".join(sorted(one.places))
            print(f"{one.result} {one.kind} {one.name} {one.why or where}")
    sys.exit(any(one.result == "wrong" for one in found))


if __name__ == "__main__":
    main()
