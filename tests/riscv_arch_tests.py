"""Runs RISC-V's architectural tests on both engines: ``python -m tests.riscv_arch_tests``.

The command takes the folder ``riscv-test-suite`` of `riscv-arch-test
<https://github.com/riscv-non-isa/riscv-arch-test>`_ and the program that `riscv-isa-sim
<https://github.com/riscv-software-src/riscv-isa-sim>`_ builds, Spike. It builds each test for RV32
of the suites I, M, Zifencei and privilege with Debian's ``gcc-riscv64-unknown-elf``. A test passes
if the signature that it leaves in memory is Spike's, on both engines. The exit code is 0 if all
tests pass.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from nmpsim.isa.table import DRAM_BASE
from tests.riscv_tests import ENGINES, ElfImage, NotATestError, read_elf, run_machine

COMPILER = "riscv64-unknown-elf-gcc"
SUITES = ("I", "M", "Zifencei", "privilege")
ISA = "rv32im_zicsr_zifencei"
MODEL = r"""
#define RVMODEL_BOOT
#define RVMODEL_HALT li x1, 1; 1: sw x1, tohost, t2; j 1b;
#define RVMODEL_DATA_BEGIN \
  .pushsection .tohost, "aw", @progbits; .balign 64; .global tohost; tohost: .dword 0; \
  .global fromhost; fromhost: .dword 0; .popsection; \
  .balign 16; .global begin_signature; begin_signature:
#define RVMODEL_DATA_END .balign 16; .global end_signature; end_signature:
#define RVMODEL_IO_INIT
#define RVMODEL_IO_WRITE_STR(register, text)
#define RVMODEL_IO_CHECK()
#define RVMODEL_IO_ASSERT_GPR_EQ(s, register, value)
#define RVMODEL_SET_MSW_INT
#define RVMODEL_CLEAR_MSW_INT
#define RVMODEL_CLEAR_MTIMER_INT
#define RVMODEL_CLEAR_MEXT_INT
"""
"""Macros that a test expects from the processor: its end, and the place of the signature."""
SCRIPT = f"""
ENTRY(rvtest_entry_point)
SECTIONS {{
  . = {DRAM_BASE:#x};
  .text : {{ *(.text.init) *(.text*) }}
  .tohost : ALIGN(4096) {{ *(.tohost) }}
  .data : ALIGN(4096) {{ *(.data*) *(.bss*) }}
}}
"""


def build_test(source: Path, suite: Path, folder: Path) -> Path:
    """Build a test in ``folder`` and return the ELF file; raise NotATestError if it fails."""
    (folder / "model_test.h").write_text(MODEL)
    (folder / "test.ld").write_text(SCRIPT)
    built = folder / f"{source.stem}.elf"
    has_handler = "def rvtest_mtrap_routine" in source.read_text(encoding="utf-8")
    result = subprocess.run(
        [
            COMPILER,
            *(f"-march={ISA}", "-mabi=ilp32", "-mcmodel=medany", "-nostdlib", "-static"),
            *("-DXLEN=32", "-DTEST_CASE_1=True"),
            *["-Drvtest_mtrap_routine=True"] * has_handler,
            *(f"-I{folder}", f"-I{suite / 'env'}", "-Wl,-n", f"-T{folder / 'test.ld'}"),
            *(str(source), "-o", str(built)),
        ],
        check=False,
        capture_output=True,
        text=True,
    )
    if result.returncode:
        raise NotATestError(f"{source.name} cannot be built: {result.stderr[:300]}")
    return built


def read_signature(elf: ElfImage, engine: str) -> tuple[str, list[int]]:
    """Run a test; return how it ended, and the words of its signature."""
    machine, ending = run_machine(elf, engine)
    begin, end = (elf.symbols[f"{name}_signature"] - DRAM_BASE for name in ("begin", "end"))
    return ending, machine.ram[begin:end].view(np.uint32).tolist()


def read_spike_signature(spike: Path, built: Path) -> list[int]:
    """Run a test on Spike and return the words of its signature; [] if Spike did not end."""
    file = built.with_suffix(".signature")
    options = ("+signature-granularity=4", f"+signature={file}", str(built))
    try:
        subprocess.run(
            [spike, f"--isa={ISA}_zicntr", "--priv=m", "--pmpregions=0", *options],
            check=False,
            capture_output=True,
            timeout=60,
        )
    except subprocess.TimeoutExpired:
        return []
    return [int(line, 16) for line in file.read_text().split()] if file.exists() else []


def check_test(built: Path, spike: Path) -> str:
    """Return ``passed``, or how the signatures of the engines differ from Spike's."""
    elf, expected = read_elf(built), read_spike_signature(spike, built)
    if not expected:
        return "FAILED: no signature from Spike"
    for engine in ENGINES:
        ending, found = read_signature(elf, engine)
        if ending != "passed" or len(found) != len(expected):
            return f"FAILED: {engine}: {ending}, {len(found)} words instead of {len(expected)}"
        differences = [at for at, word in enumerate(expected) if word != found[at]]
        for at in differences[:1]:
            return (
                f"FAILED: {engine}: word {at} is {found[at]:#010x}, on Spike {expected[at]:#010x};"
                f" {len(differences)} differ"
            )
    return "passed"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.riscv_arch_tests", description=__doc__)
    parser.add_argument("suite", type=Path, help="the folder riscv-test-suite")
    parser.add_argument("spike", type=Path, help="the program `spike`, built")
    options = parser.parse_args(arguments)
    sources = {
        name: sorted((options.suite / "rv32i_m" / name / "src").glob("*.S")) for name in SUITES
    }
    if not any(sources.values()) or not options.spike.is_file():
        print(f"skipped: no tests in {options.suite}, or no file {options.spike}")
        return 0
    failed, summary = 0, []
    with tempfile.TemporaryDirectory() as folder:
        for name, paths in sources.items():
            passed = 0
            for source in paths:
                try:
                    verdict = check_test(
                        build_test(source, options.suite, Path(folder)), options.spike
                    )
                except NotATestError as error:
                    verdict = f"FAILED: {error}"
                passed += verdict == "passed"
                print(f"{source.stem:20}  {verdict}", flush=True)
            failed += len(paths) - passed
            summary.append(f"{name}: {passed} of {len(paths)} passed")
    print(*summary, sep="\n")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
