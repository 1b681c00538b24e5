"""Pytest plugin with the fixtures ``nmp`` and ``nmp_snapshot``; docs/pytest.md describes them.

pytest loads it whenever it starts, so nothing heavy is imported before a test asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import pytest

if TYPE_CHECKING:
    import numpy.typing as npt

    from nmpsim.bundle import Bundle, BundleHolder
    from nmpsim.checking.run import Run
    from nmpsim.checking.snapshot import Runner

MARKER = (
    "nmp_device(file=None, **settings): run on the device of a file (from the test's folder on),"
    " or on the bundle's own, with some settings changed: nmp_device(dram_bytes_per_cycle=8)"
)
SNAPSHOTS = "nmp_snapshots"
"""Name of the folder next to the tests."""
Result = TypeVar("Result")
_written = pytest.StashKey[list[Path]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option ``--nmp-update``."""
    group = parser.getgroup("nmpsim")
    group.addoption(
        "--nmp-update", action="store_true", help="Write the snapshots of nmp_snapshot."
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line("markers", MARKER)
    config.stash[_written] = []


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Report how many snapshots were written."""
    written = config.stash[_written]
    if written:
        word = "snapshot" if len(written) == 1 else "snapshots"
        terminalreporter.write_line(f"nmpsim: {len(written)} {word} written")


class NmpSession:
    """Programs of a test session."""

    def __init__(self) -> None:
        self._runner: Runner | None = None

    @property
    def runner(self) -> Runner:
        """Runner of programs, created on first use."""
        if self._runner is None:
            from nmpsim.checking.snapshot import Runner

            self._runner = Runner()
        return self._runner

    def load(self, path: Path | str) -> Bundle:
        """Load a bundle file, or compile a model file; each file is read once."""
        return self.runner.load(path)

    def compile(self, lir: Path | str, weights: Path | str | None = None, **options: Any) -> Bundle:
        """Compile LIR text; options are those of :func:`nmpsim.compile`."""
        return self.runner.compile(lir, weights, **options)


class Nmp:
    """Fixture that loads, compiles and runs programs on the device of a test."""

    def __init__(self, session: NmpSession, node: pytest.Item) -> None:
        self._session = session
        self._file, self._settings = _device_of(node)
        self.load = session.load
        self.compile = session.compile

    def run(
        self,
        bundle: Bundle | BundleHolder | Path | str,
        inputs: Mapping[str, npt.ArrayLike],
        *,
        hazards: Literal["none"] | None = None,
        strict: bool = True,
    ) -> Run:
        """Run a bundle, or that of a file; the test fails if the run traps.

        Parameters
        ----------
        bundle
            What ``load`` or ``compile`` gave, or a file.
        inputs
            By name; float ones are quantized.
        hazards
            ``"none"`` lets the test also fail if what the run answers depends on when a transfer
            lands; a second run looks for that.
        strict
            The test fails, too, if the program breaks the contract of the instruction set.

        Raises
        ------
        UserError
            Codes of FILE, BUN, DEV and INPUT.
        """
        __tracebackhide__ = True
        given = (bundle, inputs, self._file, self._settings, hazards, strict)
        run, wrong = _done(self._session.runner.run, *given)
        if wrong:
            raise AssertionError(wrong)
        return run

    def assert_outputs(
        self,
        run: Run,
        outputs: Mapping[str, npt.ArrayLike] | None = None,
        *,
        layers: Mapping[str, npt.ArrayLike] | None = None,
        ulp: int = 0,
        sqnr_db: float | None = None,
    ) -> None:
        """Fail, and say which layer and element and by how much, unless a run's answer is right.

        Parameters
        ----------
        run
            What ``run`` gave.
        outputs
            What outputs must be, by name, as the device stores them.
        layers
            What layers' outputs must be, likewise.
        ulp
            Units of the last place that an element may be off.
        sqnr_db
            Signal to quantization noise that is enough instead.
        """
        __tracebackhide__ = True
        from nmpsim.checking.snapshot import check_tolerances, compare_arrays

        if not outputs and not layers:
            pytest.fail("assert_outputs has nothing to compare with")
        _done(check_tolerances, ulp, sqnr_db)
        wrong = _done(compare_arrays, run, outputs or {}, layers or {}, ulp, sqnr_db)
        if wrong:
            raise AssertionError(wrong)


class NmpSnapshot:
    """Fixture that compares runs with snapshots."""

    def __init__(self, node: pytest.Item, update: bool) -> None:
        self._node = node
        self._update = update
        self._names: set[str] = set()

    def check(
        self,
        run: Run,
        name: str = "",
        *,
        cycles_percent: float = 0.0,
        ulp: int = 0,
        sqnr_db: float | None = None,
    ) -> None:
        """Fail if outputs, cycles or saturation are worse than in the snapshot.

        Parameters
        ----------
        run
            What ``nmp.run`` gave.
        name
            Tells several snapshots of a test apart.
        cycles_percent
            How many more cycles are allowed.
        ulp
            Units of the last place that an element of an output may be off.
        sqnr_db
            Signal to quantization noise that is enough instead.
        """
        __tracebackhide__ = True
        from nmpsim.checking.snapshot import check_tolerances, compare_snapshot, write_snapshot

        if name in self._names:
            pytest.fail(f"the test has two snapshots named {name!r}: give each its own name")
        self._names.add(name)
        _done(check_tolerances, ulp, sqnr_db, cycles_percent)
        path = snapshot_path(self._node, name)
        if self._update:
            write_snapshot(run, path)
            self._node.config.stash[_written].append(path)
            return
        worse = compare_snapshot(run, path, cycles_percent, ulp, sqnr_db)
        if worse:
            raise AssertionError(f"{worse}\nIf that is meant: pytest --nmp-update")


def snapshot_path(node: pytest.Item, name: str) -> Path:
    """Return ``nmp_snapshots/MODULE/TEST[.NAME].json`` next to the test's file."""
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
def nmp_session() -> NmpSession:
    """Return the loader and compiler of a whole session."""
    return NmpSession()


@pytest.fixture
def nmp(nmp_session: NmpSession, request: pytest.FixtureRequest) -> Nmp:
    """Return a fixture that loads, compiles and runs programs on the device of ``nmp_device``."""
    return Nmp(nmp_session, request.node)


@pytest.fixture
def nmp_snapshot(request: pytest.FixtureRequest) -> NmpSnapshot:
    """Return a fixture that compares runs with snapshots written by ``--nmp-update``."""
    return NmpSnapshot(request.node, request.config.getoption("--nmp-update"))
