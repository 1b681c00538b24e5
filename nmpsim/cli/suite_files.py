"""The arrays that the cases of a suite name: inputs, and what is expected."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmpsim.atomic import file_name
from nmpsim.checking import Case, CaseResult, CaseWork, Expected
from nmpsim.checking.expectations import layer_name, refuse_unknown
from nmpsim.cli.arrays import ArrayFile
from nmpsim.cli.input_options import NOTHING_SAID, GivenInputs, ImageOptions
from nmpsim.cli.inputs import fitting_inputs, sample_shapes
from nmpsim.cli.loading import load_program
from nmpsim.config import load_device
from nmpsim.diagnostics import Place, UserError, about, fail
from nmpsim.session import is_model
from nmpsim.views.text import shape_text

if TYPE_CHECKING:
    import numpy.typing as npt

    from nmpsim.bundle import Bundle, Metadata, Tensor

_OUTPUT = "output/"
"""What the files of recorded runs, which hold constants too, write before an output's name."""


def case_work(
    cases: Iterable[Case],
    *,
    update: bool,
    cores: Path | None = None,
    strict: bool = True,
    images: ImageOptions = NOTHING_SAID,
) -> Iterator[CaseWork | CaseResult]:
    """Each case with its arrays, or why they cannot be read; ``cores``: folder of core files."""
    last = LastBundle()
    for case in cases:
        try:
            yield _work(case, update, core_path(cores, case), strict, images, last)
        except UserError as error:
            yield CaseResult(case.name, case.lir, errors=error.diagnostics)


def core_path(folder: Path | None, case: Case) -> Path | None:
    """Where the core file of a case belongs, if there is a folder for them."""
    return None if folder is None else folder / f"{file_name(case.name)}.core"


class LastBundle:
    """The bundle of the case before: most cases of a suite are of one."""

    def __init__(self) -> None:
        self._known: tuple[object, ...] | None = None
        self._bundle: Bundle | None = None

    def load(self, case: Case) -> Bundle:
        """That of a case, read again if its file is another one, or has changed."""
        device = None if case.device is None else load_device(case.device)
        arguments = tuple(one.argument for one in case.input)
        shapes = sample_shapes(arguments) if is_model(case.bundle) else {}
        known = (case.bundle, device, _state(case.bundle), shapes)
        if self._bundle is None or known != self._known:
            self._known = self._bundle = None
            self._bundle = load_program(case.bundle, device=device, inputs=arguments)
            self._known = known
        return self._bundle


def _state(path: Path) -> tuple[int, ...]:
    """What a file is known by, until somebody writes it."""
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _work(
    case: Case,
    update: bool,
    core: Path | None,
    strict: bool,
    images: ImageOptions,
    last: LastBundle,
) -> CaseWork:
    bundle = last.load(case)
    metadata = bundle.metadata
    arguments = tuple(one.argument for one in case.input)
    inputs = fitting_inputs(GivenInputs(arguments, images), metadata)
    expect = case.expect
    outputs = None if expect.outputs is None else _outputs(expect.outputs, metadata)
    layers = None if expect.layers is None else _layers(expect.layers, metadata)
    return CaseWork(case, bundle, inputs, Expected(outputs, layers), update, core, strict=strict)


def _outputs(path: Path, metadata: Metadata) -> dict[str, npt.NDArray[Any]]:
    """Outputs by name; an ``.npy`` file is of the only one."""
    file = ArrayFile(path)
    outputs = {output.name: output for output in metadata.user_outputs}
    recorded = [key for key in file.keys if key.startswith(_OUTPUT)]
    keys = {key.removeprefix(_OUTPUT): key for key in recorded or file.keys}
    if len(keys) == len(outputs) == 1 and not file.is_archive:
        keys = dict(zip(outputs, file.keys, strict=True))
    return _arrays(file, keys, outputs, "output")


def _layers(path: Path, metadata: Metadata) -> dict[str, npt.NDArray[Any]]:
    file = ArrayFile(path)
    if not file.is_archive:
        raise file.unusable("outputs of layers have names, in an .npz file", "an .npy file")
    layers = {layer.name: layer.output for layer in metadata.layers}
    return _arrays(file, {layer_name(key): key for key in file.keys}, layers, "layer")


def _arrays(
    file: ArrayFile, keys: Mapping[str, str], tensors: Mapping[str, Tensor], what: str
) -> dict[str, npt.NDArray[Any]]:
    """The arrays of these keys by the names of tensors; none is larger than its tensor."""
    with about(file.path):
        refuse_unknown(keys, tensors, what)
    stored = {name: file.array(key) for name, key in keys.items()}
    for name, array in stored.items():
        if not tensors[name].holds(array.shape):
            raise fail(
                "INPUT002",
                f"what is expected of {what} {name!r} has another shape",
                place=Place(str(file.path)),
                found=shape_text(array.shape),
                expected=shape_text(tensors[name].shape),
            )
    return {name: array.read() for name, array in stored.items()}
