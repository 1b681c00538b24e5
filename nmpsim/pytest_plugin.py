"""Pytest plugin with the fixtures ``nmp`` and ``nmp_snapshot``; docs/pytest.md describes them.

pytest loads the plugin whenever it starts, so nothing heavy is imported before a test needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import pytest

if TYPE_CHECKING:
    import numpy.typing as npt

    from nmpsim.bundle import Bundle, BundleHolder
    from nmpsim.checking.run import CheckedRun
    from nmpsim.checking.snapshot import ProgramRunner

MARKER = (
    "nmp_device(file=None, **settings): run on the device of a file (from the test's folder on),"
    " or on the bundle's own, with some settings changed: nmp_device(dram_bytes_per_cycle=8)"
)
SNAPSHOTS = "nmp_snapshots"
"""Name of the folder next to the tests."""
Result = TypeVar("Result")
_written = pytest.StashKey[list[Path]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option ``--nmp-update`` to pytest."""
    group = parser.getgroup("nmpsim")
    group.addoption(
        "--nmp-update", action="store_true", help="Write the snapshots of nmp_snapshot."
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker ``nmp_device``."""
    config.addinivalue_line("markers", MARKER)
    config.stash[_written] = []


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Report the number of snapshots that were written."""
    written = config.stash[_written]
    if written:
        word = "snapshot" if len(written) == 1 else "snapshots"
        terminalreporter.write_line(f"nmpsim: {len(written)} {word} written")


class Nmp:
    """Fixture that loads, compiles and runs programs on the device of a test."""

    def __init__(self, runner: ProgramRunner, node: pytest.Item) -> None:
        self._runner = runner
        self._file, self._settings = _device_of(node)
        self.load = runner.load
        self.compile = runner.compile

    def run(
        self,
        bundle: Bundle | BundleHolder | Path | str,
        inputs: Mapping[str, npt.ArrayLike],
        *,
        hazards: Literal["none"] | None = None,
        strict: bool = True,
    ) -> CheckedRun:
        """Run a program on the device of the test; fail the test if the run traps.

        Parameters
        ----------
        bundle
            A program from ``load`` or ``compile``, or its file.
        inputs
            Inputs by name; float inputs are quantized.
        hazards
            ``"none"`` lets the test also fail if an output depends on the time of a transfer. A
            second run searches for such hazards.
        strict
            Whether the test also fails if the program violates the contract of the instruction set.

        Returns
        -------
        Run
            The completed run.

        Raises
        ------
        UserError
            Codes of FILE, BUN, DEV and INPUT.
        """
        __tracebackhide__ = True
        given = (bundle, inputs, self._file, self._settings, hazards, strict)
        run, wrong = _done(self._runner.run, *given)
        if wrong:
            raise AssertionError(wrong)
        return run

    def assert_outputs(
        self,
        run: CheckedRun,
        outputs: Mapping[str, npt.ArrayLike] | None = None,
        *,
        layers: Mapping[str, npt.ArrayLike] | None = None,
        ulp: int = 0,
        sqnr_db: float | None = None,
    ) -> None:
        """Fail the test unless outputs and layers of a run have the expected values.

        The message names the first wrong layer and element and the size of the error.

        Parameters
        ----------
        run
            Result of :meth:`run`.
        outputs
            Expected outputs by name, as the device stores them.
        layers
            Expected outputs of layers by name.
        ulp
            Allowed difference in units of the last place.
        sqnr_db
            Signal-to-quantization-noise ratio in dB that is sufficient instead.
        """
        __tracebackhide__ = True
        from nmpsim.checking.snapshot import check_tolerances, compare_arrays

        if not outputs and not layers:
            pytest.fail("assert_outputs has nothing to compare with: pass outputs= or layers=")
        _done(check_tolerances, ulp, sqnr_db)
        wrong = _done(compare_arrays, run, outputs or {}, layers or {}, ulp, sqnr_db)
        if wrong:
            raise AssertionError(wrong)


class NmpSnapshot:
    """Fixture that compares runs with stored snapshots."""

    def __init__(self, node: pytest.Item, update: bool) -> None:
        self._node = node
        self._update = update
        self._names: set[str] = set()

    def check(
        self,
        run: CheckedRun,
        name: str = "",
        *,
        cycles_percent: float = 0.0,
        ulp: int = 0,
        sqnr_db: float | None = None,
    ) -> None:
        """Fail the test if outputs, cycles or saturation of a run are worse than in the snapshot.

        Parameters
        ----------
        run
            Result of ``nmp.run``.
        name
            Name of the snapshot, if a test has several.
        cycles_percent
            Allowed increase of cycles in percent.
        ulp
            Allowed difference of outputs in units of the last place.
        sqnr_db
            Signal-to-quantization-noise ratio in dB that is sufficient instead.
        """
        __tracebackhide__ = True
        from nmpsim.checking.snapshot import check_tolerances, compare_snapshot, write_snapshot

        if name in self._names:
            pytest.fail(f"the test has two snapshots named {name!r}: give each its own name")
        self._names.add(name)
        _done(check_tolerances, ulp, sqnr_db, cycles_percent)
        path = make_snapshot_path(self._node, name)
        if self._update:
            write_snapshot(run, path)
            self._node.config.stash[_written].append(path)
            return
        worse = compare_snapshot(run, path, cycles_percent, ulp, sqnr_db)
        if worse:
            raise AssertionError(f"{worse}\nIf the change is intended, run `pytest --nmp-update`.")


def make_snapshot_path(node: pytest.Item, name: str) -> Path:
    """Return the path ``nmp_snapshots/MODULE/TEST[.NAME].json`` next to the test's file."""
    from nmpsim.atomic import make_file_name

    words = ".".join([*node.nodeid.split("::")[1:], *([name] if name else [])])
    return node.path.parent / SNAPSHOTS / node.path.stem / f"{make_file_name(words)}.json"


def _done(work: Callable[..., Result], *given: Any) -> Result:
    """Call ``work``; the traceback of a user error ends in the test."""
    __tracebackhide__ = True
    from nmpsim.diagnostics import UserError

    try:
        return work(*given)
    except UserError as error:
        raise error.with_traceback(None) from None


def _device_of(node: pytest.Item) -> tuple[Path | None, dict[str, Any]]:
    """Return file and changed settings of a test's markers; markers nearer to the test win."""
    file: Path | None = None
    settings: dict[str, Any] = {}
    for marker in reversed(list(node.iter_markers("nmp_device"))):
        given = marker.args[0] if marker.args else marker.kwargs.get("file")
        file = file if given is None else node.path.parent / given
        settings |= {key: value for key, value in marker.kwargs.items() if key != "file"}
    return file, settings


@pytest.fixture(scope="session")
def nmp_session() -> ProgramRunner:
    """Return the program runner that all tests of a session share."""
    from nmpsim.checking.snapshot import ProgramRunner

    return ProgramRunner()


@pytest.fixture
def nmp(nmp_session: ProgramRunner, request: pytest.FixtureRequest) -> Nmp:
    """Return the fixture that runs programs on the device of the marker ``nmp_device``."""
    return Nmp(nmp_session, request.node)


@pytest.fixture
def nmp_snapshot(request: pytest.FixtureRequest) -> NmpSnapshot:
    """Return the fixture that compares runs with snapshots, or writes them on ``--nmp-update``."""
    return NmpSnapshot(request.node, request.config.getoption("--nmp-update"))
