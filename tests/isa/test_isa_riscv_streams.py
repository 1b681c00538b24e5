"""The commands that compare engines with Spike, with a stand-in that prints a recorded log."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from nmpsim.analysis.trace.commits import format_commit
from nmpsim.bundle.assembly import assemble
from nmpsim.core.reference.commits import Commit
from nmpsim.isa.table import DRAM_BASE, InstructionKind, list_mnemonics
from tests import riscv_arch_tests, riscv_streams

SEEDS = range(4)
NOT_IN_STREAMS = (InstructionKind.TENSOR, InstructionKind.SYNC)


@pytest.fixture(scope="module")
def streams() -> list[tuple[bytes, list[Commit]]]:
    """Memory and commits of random programs, after a comparison of both engines."""
    found = []
    for seed in SEEDS:
        code = riscv_streams.StreamGenerator(seed, 400).generate()
        memory = riscv_streams.make_memory(seed, code)
        machine, commits = riscv_streams.run_reference(memory)
        assert riscv_streams.find_final_difference(memory, machine) is None
        found.append((memory, commits))
    return found


def test_streams_have_all_instructions_and_traps(
    streams: list[tuple[bytes, list[Commit]]],
) -> None:
    commits = [one for _, commits in streams for one in commits]
    executed = {one.instruction.mnemonic for one in commits if one.instruction is not None}
    scalar = set(list_mnemonics(*set(InstructionKind) - set(NOT_IN_STREAMS)))
    assert scalar - executed == {"ecall", "ebreak", "wfi"}
    assert {one.cause.value for one in commits if one.cause is not None} == {*range(8), 11}


def test_a_difference_at_the_end_is_found(streams: list[tuple[bytes, list[Commit]]]) -> None:
    memory, _ = streams[0]
    machine, _ = riscv_streams.run_reference(memory)
    machine.ram[-1] ^= 1
    found = riscv_streams.find_final_difference(memory, machine)
    assert found == "compiled engine differs at the end: DONE ram"


def write_program(path: Path, text: str) -> Path:
    """Write an executable Python program."""
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(0o755)
    return path


def test_a_line_that_differs_from_spike_is_found(
    streams: list[tuple[bytes, list[Commit]]], tmp_path: Path
) -> None:
    memory, commits = streams[0]
    lines = [format_commit(one).split(" # ")[0] for one in commits if one.cause is None]
    log = tmp_path / "log"
    text = f"import sys, time\nsys.stderr.write(open({str(log)!r}).read())\ntime.sleep(60)\n"
    spike = write_program(tmp_path / "spike", text)
    log.write_text("\n".join(lines) + "\n")
    assert riscv_streams.find_spike_difference(spike, memory, commits) is None
    lines[100] += "0"
    log.write_text("\n".join(lines) + "\n")
    found = riscv_streams.find_spike_difference(spike, memory, commits)
    assert found is not None
    assert found.endswith(f"{lines[100]} (Spike)")


@pytest.mark.parametrize("command", [riscv_streams, riscv_arch_tests])
def test_without_spike_nothing_runs(
    command: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spike = str(tmp_path / "spike")
    arguments = [spike] if command is riscv_streams else [str(tmp_path), spike]
    assert command.main(arguments) == 0  # type: ignore[attr-defined]
    captured = capsys.readouterr()
    assert "skipped: " in captured.out + captured.err


@pytest.mark.parametrize(
    ("word", "verdict"),
    [
        ("00000005", "passed"),
        ("00000006", "FAILED: reference: word 1 is 0x00000005, on Spike 0x00000006; 1 differ"),
    ],
)
def test_signatures_of_architectural_tests_are_compared(
    tmp_path: Path, word: str, verdict: str
) -> None:
    built = tmp_path / "add.elf"
    text = f"""
        .set tohost, {DRAM_BASE + 0x1000:#x}
        .set begin_signature, {DRAM_BASE + 0x1010:#x}
        .set end_signature, {DRAM_BASE + 0x1018:#x}
        _start: la t0, tohost
        li t1, 5
        sw t1, 20(t0)
        li t1, 1
        sw t1, 0(t0)
        end: j end
    """
    built.write_bytes(assemble(text).build_bundle())
    spike = write_program(
        tmp_path / "spike",
        "import sys\n"
        "(path,) = [one[11:] for one in sys.argv if one.startswith('+signature=')]\n"
        f"open(path, 'w').write('00000000\\n{word}\\n')\n",
    )
    assert riscv_arch_tests.check_test(built, spike) == verdict
