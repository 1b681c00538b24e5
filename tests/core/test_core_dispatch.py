"""Kernels are compiled one by one, when a program first needs them."""

from __future__ import annotations

import pytest
from core_machines import SPM, Program, device, from_descriptors

from nmpsim.core.compiled import warmup
from nmpsim.core.compiled.entries import KERNELS
from nmpsim.core.compiled.issue import IS_JIT_DISABLED
from nmpsim.core.engine_selection import make_engine
from nmpsim.core.instruction_tables import OP
from nmpsim.core.state import Outcome
from nmpsim.kernels import entries
from nmpsim.timing import get_costs

FILL = from_descriptors(("nmp.fill", {"output": SPM, "count": 3, "value": 7}))


def run(engine: object, program: Program = FILL) -> bytes:
    machine = program.machine()
    outcome = engine.run(machine, get_costs(device()), 1 << 40, False)  # type: ignore[attr-defined]
    assert outcome == Outcome.DONE
    return machine.scratchpad[0, :4].tobytes()


@pytest.mark.skipif(IS_JIT_DISABLED, reason="nothing is compiled")
def test_a_program_compiles_only_its_kernels() -> None:
    engine = make_engine("compiled")
    assert run(engine) == b"\7\7\7\0"
    assert [int(n) for n in engine._kernels.addresses.nonzero()[0]] == [OP.nmp_fill]
    assert engine.compilation.seconds > 0


@pytest.mark.skipif(IS_JIT_DISABLED, reason="nothing is compiled")
def test_an_interrupted_compilation_can_be_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    engine = make_engine("compiled")
    with monkeypatch.context() as patch:
        patch.setattr(entries.AddressedKernel, "address", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(engine)
    assert run(engine) == b"\7\7\7\0"


@pytest.mark.skipif(IS_JIT_DISABLED, reason="nothing is compiled")
def test_the_first_compilation_shows_a_notice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[str] = []
    fill = KERNELS[OP.nmp_fill]
    for kept, expected in ((True, []), (False, ["compiling"])):
        engine = make_engine("compiled")
        run(engine)
        engine._kernels.addresses[:] = 0
        engine.compilation.listener = lambda: said.append("compiling")
        monkeypatch.setattr(fill, "is_cached", lambda k=kept: k)
        run(engine)
        assert said == expected


def test_a_host_without_processes_compiles_in_the_foreground(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError

    monkeypatch.setattr(warmup.subprocess, "Popen", refused)
    alone = warmup.Warmup()
    alone.start()
    alone.wait()
