"""Bundles, inputs and expected outputs of the cases of a suite."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmpsim.analysis.matching import list_saved_tensors, match_layers
from nmpsim.array_files import ArrayFile
from nmpsim.arrays import Shape
from nmpsim.atomic import make_file_name
from nmpsim.checking import CaseResult, CaseWork, Expectations, ExpectedArrays, SuiteCase
from nmpsim.checking.expectations import check_names, parse_layer_name
from nmpsim.cli.inputs import load_inputs, read_sample_shapes
from nmpsim.cli.loading import load_program
from nmpsim.cli.options import DEFAULT_IMAGES, ImageOptions, InputOptions
from nmpsim.cli.recorded_runs import run_live_reference
from nmpsim.config import load_device
from nmpsim.core.inputs import prepare_inputs
from nmpsim.diagnostics import UserError, fail, locate_errors
from nmpsim.session import is_model
from nmpsim.views.text import format_shape

if TYPE_CHECKING:
    import numpy.typing as npt

    from nmpsim.bundle import Bundle, Metadata, Tensor
    from nmpsim.references import ReferenceRun

_OUTPUT = "output/"
"""Prefix of an output's name in files of recorded runs, which hold constants too."""


def load_cases(
    cases: Iterable[SuiteCase],
    *,
    update: bool,
    core_folder: Path | None = None,
    strict: bool = True,
    images: ImageOptions = DEFAULT_IMAGES,
) -> Iterator[CaseWork | CaseResult]:
    """Load suite cases; yield the work of each case, or a result if files cannot be read.

    Core files of failed cases belong in ``core_folder``.
    """
    bundles = BundleCache()
    for case in cases:
        try:
            yield _load_case(
                case, update, get_core_path(core_folder, case), strict, images, bundles
            )
        except UserError as error:
            yield CaseResult(case.name, case.lir, errors=error.diagnostics)


def get_core_path(folder: Path | None, case: SuiteCase) -> Path | None:
    """Return the path of the core file of a case, or None if ``folder`` is None."""
    return None if folder is None else folder / f"{make_file_name(case.name)}.core"


class BundleCache:
    """Cache of the bundle that was loaded last."""

    def __init__(self) -> None:
        self._key: tuple[object, ...] | None = None
        self._bundle: Bundle | None = None

    def load(self, case: SuiteCase) -> Bundle:
        """Load the bundle of a case, or return the last one if file and device are unchanged."""
        device = None if case.device is None else load_device(case.device)
        arguments = tuple(one.argument for one in case.input)
        shapes = read_sample_shapes(arguments) if is_model(case.bundle) else {}
        key = (case.bundle, device, _file_state(case.bundle), shapes)
        if self._bundle is None or key != self._key:
            self._key = self._bundle = None
            self._bundle = load_program(case.bundle, device=device, inputs=arguments)
            self._key = key
        return self._bundle


def _file_state(path: Path) -> tuple[int, ...]:
    """Return numbers that change when a file is written."""
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _load_case(
    case: SuiteCase,
    update: bool,
    core: Path | None,
    strict: bool,
    images: ImageOptions,
    bundles: BundleCache,
) -> CaseWork:
    bundle = bundles.load(case)
    metadata = bundle.metadata
    arguments = tuple(one.argument for one in case.input)
    inputs = load_inputs(InputOptions(arguments=arguments, images=images), metadata)
    expect = case.expect
    stored = prepare_inputs(bundle, inputs)

    def run_reference(path: Path) -> ReferenceRun | None:
        return run_live_reference(path, metadata, stored, case.timeout)

    outputs = layers = None
    if expect.outputs is not None:
        outputs = _outputs(expect.outputs, metadata, run_reference(expect.outputs))
    if expect.layers is not None:
        layers = _layers(expect, expect.layers, metadata, run_reference(expect.layers))
    return CaseWork(
        case, bundle, inputs, ExpectedArrays(outputs, layers), update, core, strict=strict
    )


def _outputs(
    path: Path, metadata: Metadata, live: ReferenceRun | None
) -> dict[str, npt.NDArray[Any]]:
    """Return expected outputs by name from a model's run, an ``.npz`` file, or the only array."""
    if live is not None:
        return dict(live.outputs)
    file = ArrayFile(path)
    outputs = {output.name: output for output in metadata.user_outputs}
    recorded = [key for key in file.keys if key.startswith(_OUTPUT)]
    keys = {key.removeprefix(_OUTPUT): key for key in recorded or file.keys}
    if len(keys) == len(outputs) == 1 and not file.is_archive:
        keys = dict(zip(outputs, file.keys, strict=True))
    return _arrays(file, keys, outputs, "output")


def _layers(
    expect: Expectations, path: Path, metadata: Metadata, live: ReferenceRun | None
) -> dict[str, npt.NDArray[Any]]:
    """Return expected outputs of layers by name; names of another tool are matched with layers."""
    if live is not None:
        from nmpsim.verification import list_expected_outputs

        return list_expected_outputs(metadata, live, expect.map, expect.layout)
    file = ArrayFile(path)
    if not file.is_archive:
        raise file.make_error(
            "the file of expected outputs has no names", "an .npy file", "an .npz file"
        )
    layers = {layer.name: layer.output for layer in metadata.layers}
    keys = {parse_layer_name(key): key for key in file.keys}
    if keys.keys() <= layers.keys() and not expect.map and expect.layout == "auto":
        return _arrays(file, keys, layers, "layer")
    with locate_errors(path):
        references = list(list_saved_tensors(file.keys, file.read))
        matching = match_layers(metadata, references, expect.map, expect.layout)
        in_model = {operator.node.split(" ", 2)[-1] for operator in metadata.operators}
        unknown = [one.name for one in matching.unmatched_references if one.name not in in_model]
        if unknown and all(one.tensor.name == one.reference.name for one in matching.pairs):
            check_names(unknown, layers, "layer")
    found: dict[str, npt.NDArray[Any]] = {}
    for pair in matching.pairs:
        values, name = matching.read_expected(pair), pair.tensor.name
        if values is None:
            raise _make_shape_error(path, "layer", name, pair.reference.shape, layers[name].shape)
        found[name] = values
    return found


def _arrays(
    file: ArrayFile, keys: Mapping[str, str], tensors: Mapping[str, Tensor], what: str
) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of these keys by the names of tensors, whose shapes they have."""
    with locate_errors(file.path):
        check_names(keys, tensors, what)
    stored = {name: file.get_array(key) for name, key in keys.items()}
    for name, array in stored.items():
        if not tensors[name].accepts_shape(array.shape):
            raise _make_shape_error(file.path, what, name, array.shape, tensors[name].shape)
    return {name: array.read() for name, array in stored.items()}


def _make_shape_error(path: Path, what: str, name: str, found: Shape, expected: Shape) -> UserError:
    return fail(
        "INPUT002",
        f"the expected values of {what} {name!r} have another shape",
        place=path,
        found=format_shape(found),
        expected=format_shape(expected),
        hint=f"Save the values in the shape of the {what}.",
    )
