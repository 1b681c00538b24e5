"""Test the notice that kernels are being compiled."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from typing import Any

import attrs
import pytest

import nmpsim
from nmpsim.bundle.assembly import assemble
from nmpsim.bundle.read import parse_bundle
from nmpsim.compile_notice import COMPILE_NOTICE, print_compile_notice
from nmpsim.core.reference.engine import ReferenceEngine
from nmpsim.core.run import Progress, notify_compiling
from nmpsim.core.state import Outcome

CORE = attrs.evolve(nmpsim.default_device(), cores_count=1)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _reset_compile_notice() -> Iterator[None]:
    print_compile_notice.cache_clear()
    yield
    print_compile_notice.cache_clear()


def test_a_terminal_shows_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    notify_compiling(None)
    notify_compiling(None)
    assert terminal.getvalue() == f"{COMPILE_NOTICE}\n"
    assert caplog.records == []


@pytest.mark.parametrize("stream", [io.StringIO(), None])
def test_other_streams_get_one_log_record(
    stream: object, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("sys.stderr", stream)
    notify_compiling(None)
    notify_compiling(None)
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("nmpsim", logging.WARNING)
    assert record.getMessage() == COMPILE_NOTICE


def test_a_progress_callback_replaces_the_notice(caplog: pytest.LogCaptureFixture) -> None:
    told: list[Progress] = []
    notify_compiling(told.append)
    assert [one.kind for one in told] == ["compiling"]
    assert caplog.records == []


def test_a_run_without_progress_callback_shows_the_notice(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run = ReferenceEngine.run

    def compiles(engine: ReferenceEngine, *given: Any) -> Outcome:
        assert engine.compilation.listener is not None
        engine.compilation.listener()
        return run(engine, *given)

    monkeypatch.setattr(ReferenceEngine, "run", compiles)
    text = assemble("_start: nmp.halt", "halt.s", CORE.settings())
    nmpsim.Device(CORE, "reference").run(parse_bundle(text.build_bundle()), {})
    assert [record.getMessage() for record in caplog.records] == [COMPILE_NOTICE]
