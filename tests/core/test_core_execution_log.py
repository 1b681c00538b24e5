"""The execution log: counts and transitions of both engines, compared with commits."""

from collections import Counter
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from core_machines import ENGINES

from nmpsim.bundle import Bundle, parse_bundle
from nmpsim.bundle.assembly import assemble
from nmpsim.config import default_device
from nmpsim.core.device import Device
from nmpsim.core.execution_log import CodeLayout, ExecutionLog
from nmpsim.core.limits import Limits
from nmpsim.debuginfo import read_source_map

ROOT = Path(__file__).parents[2]
CONFIG = attrs.evolve(default_device(), cores_count=4)
CALLS = """
_start:
    csrr s0, mhartid
    addi s0, s0, 3
    li   sp, 0x20001000
again:
    jal  ra, outer
    addi s0, s0, -1
    bnez s0, again
    j    done
outer:
    addi sp, sp, -4
    sw   ra, 0(sp)
    andi a0, s0, 3
    jal  ra, recursive
    lw   ra, 0(sp)
    addi sp, sp, 4
    j    tail
recursive:
    beqz a0, leaf
    addi sp, sp, -4
    sw   ra, 0(sp)
    addi a0, a0, -1
    jal  ra, recursive
    lw   ra, 0(sp)
    addi sp, sp, 4
leaf:
    ret
tail:
    ret
done:
    li   a0, 0
    li   a1, 4
    nmp.barrier a0, a1
    nmp.halt
"""
TRAP = "_start: li t0, 5\nloop: addi t0, t0, -1\nbnez t0, loop\nlw a0, 1(x0)\n"
ENDLESS = "_start: li t0, 5\nloop: addi t0, t0, -1\nother: j loop\n"


CONSOLE = "_start: lui a0, 0x10001\nli a1, 65\nsw a1, 0(a0)\ncall: sw a1, 4(a0)\nj call\n"


class Transitions:
    """Listener that keeps all that it hears."""

    def begin_run(self) -> None:
        self.rows: list[Any] = []
        self.ends: list[list[int]] = []

    def add_transitions(self, transitions: Any) -> None:
        self.rows += transitions.tolist()

    def end_step(self, halts: Any, retired: Any, ends: Any) -> None:
        self.ends += [halts.tolist(), retired.tolist(), ends.tolist()]


def run(bundle: Bundle, engine: str, inputs: Any = (), **options: Any) -> tuple[Any, ...]:
    """Return the report, counts, transitions of each core, and the ends of all steps."""
    functions = read_source_map(bundle).functions
    heard = Transitions()
    log = ExecutionLog(CodeLayout(bundle, functions), [heard])
    device = Device(CONFIG, engine=engine, threads=2)
    report = device.run(bundle, dict(inputs), execution=log, **options)
    by_core = [[row for row in heard.rows if row[0] == core] for core in range(4)]
    return report, log.counts, by_core, heard.ends


def count_commits(bundle: Bundle, inputs: Any = (), **options: Any) -> Counter[int]:
    """Count the executions of each address independently of the log."""
    counts: Counter[int] = Counter()

    def add(commit: Any) -> None:
        counts[commit.pc] += commit.instruction is not None

    Device(CONFIG, engine="reference").run(bundle, dict(inputs), commits=add, **options)
    return counts


def make_program(text: str) -> Bundle:
    return parse_bundle(assemble(text, "t.s", CONFIG.settings()).build_bundle())


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (CALLS, {}),
        (TRAP, {"strict": False}),
        (ENDLESS, {"limits": Limits(max_cycles=500)}),
        (CONSOLE, {}),
        ((ROOT / "programs" / "assembly" / "barrier.s").read_text(), {}),
    ],
    ids=["calls", "trap", "endless", "console", "barrier"],
)
def test_counts_equal_commits_and_engines_write_the_same_log(
    text: str, options: dict[str, Any]
) -> None:
    bundle = make_program(text)
    inputs = {one.name: np.zeros(one.shape, np.int8) for one in bundle.metadata.inputs}
    first, second = (run(bundle, engine, inputs, **options) for engine in ENGINES)
    expected = count_commits(bundle, inputs, **options)
    base = CodeLayout(bundle, ()).base
    found = {base + 4 * i: n for i, n in enumerate(first[1].tolist()) if n}
    assert found == {pc: n for pc, n in expected.items() if n}
    assert first[1].tolist() == second[1].tolist()
    assert first[2] == second[2]
    assert first[3] == second[3]
    assert first[0].cycles == second[0].cycles


def test_a_log_changes_no_cycle() -> None:
    bundle = make_program(CALLS)
    logged = run(bundle, "compiled")[0]
    plain = Device(CONFIG, engine="compiled").run(bundle, {})
    assert [layer.core_cycles for layer in logged.layers] == [
        layer.core_cycles for layer in plain.layers
    ]


def test_a_long_log_is_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = make_program(CALLS)
    whole = run(bundle, "compiled")
    monkeypatch.setattr("nmpsim.core.execution_log.CAPACITY", 257 * 66)
    parts = run(bundle, "compiled")
    assert whole[2] == parts[2]
