"""The arrays that the cases of a suite name: inputs, and what is expected."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmpsim.bundle import read_bundle
from nmpsim.checking import Case, CaseResult, CaseWork, Expected
from nmpsim.cli.arrays import ArrayFile
from nmpsim.cli.inputs import load_inputs
from nmpsim.diagnostics import Place, UserError, fail

if TYPE_CHECKING:
    import numpy.typing as npt

    from nmpsim.bundle import Metadata

_OUTPUT = "output/"
"""What the files of recorded runs write before an output's name."""


def case_work(cases: Iterable[Case], *, update: bool) -> Iterator[CaseWork | CaseResult]:
    """Each case with its arrays, or why they cannot be read."""
    for case in cases:
        try:
            yield _work(case, update)
        except UserError as error:
            yield CaseResult(case.name, case.lir, errors=error.diagnostics)


def _work(case: Case, update: bool) -> CaseWork:
    metadata = read_bundle(case.bundle).metadata
    inputs = load_inputs([one.argument for one in case.input], metadata.inputs)
    expect = case.expect
    outputs = None if expect.outputs is None else _outputs(expect.outputs, metadata)
    layers = None if expect.layers is None else _layers(expect.layers, metadata)
    return CaseWork(case, inputs, Expected(outputs, layers), update)


def _outputs(path: Path, metadata: Metadata) -> dict[str, npt.NDArray[Any]]:
    """Outputs by name; a file with one array may leave the name of the only output out."""
    file = ArrayFile(path)
    names = [output.name for output in metadata.outputs]
    if len(file.keys) == len(names) == 1 and file.keys[0].removeprefix(_OUTPUT) not in names:
        return {names[0]: _read(file, file.keys[0], _elements(metadata))}
    return {key.removeprefix(_OUTPUT): _read(file, key, _elements(metadata)) for key in file.keys}


def _layers(path: Path, metadata: Metadata) -> dict[str, npt.NDArray[Any]]:
    file = ArrayFile(path)
    return {key: _read(file, key, _elements(metadata)) for key in file.keys}


def _elements(metadata: Metadata) -> int:
    """The most that an array to compare can have."""
    tensors = [*metadata.outputs, *(layer.output for layer in metadata.layers)]
    sizes = [1]
    for tensor in tensors:
        size = 1
        for dim in tensor.shape:
            size *= dim
        sizes.append(size)
    return max(sizes)


def _read(file: ArrayFile, key: str, most: int) -> npt.NDArray[Any]:
    stored = file.array(key)
    if stored.size > most:
        raise fail(
            "INPUT002",
            f"{key or 'the array'!r} is larger than anything that the program makes",
            place=Place(str(file.path)),
            found=f"{stored.size:,} elements",
            expected=f"at most {most:,}",
        )
    return stored.read()
