"""Runs built ELF files of riscv-tests on both engines: ``python -m tests.riscv_tests FOLDER``.

FOLDER holds what ``make`` in `riscv-tests <https://github.com/riscv-software-src/riscv-tests>`_
builds in ``isa``: ``rv32ui-p-add`` and so on. A file is loaded into DRAM as it is, at the addresses
that it names, on a device of one core; it says how it ended by what it writes to ``tohost``. The
exit code is 0 if every test passes, on both engines, that is not left out for a reason.

The files are built with Debian's ``gcc-riscv64-unknown-elf``, in riscv-tests' folder ``isa``::

    make XLEN=32 RISCV_PREFIX=riscv64-unknown-elf- rv32ui rv32um rv32mi

With ``--link``, each file is first wrapped as a bundle by ``nmpsim link``. This requires separate
segments of code and data: build the files with ``-T tests/riscv_tests.ld``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import attrs
import numpy as np
from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from nmpsim.bundle import Bundle, parse_bundle, read_bundle
from nmpsim.bundle.link import link_program
from nmpsim.config import default_device
from nmpsim.core.engine_selection import make_engine
from nmpsim.core.load import load_machine as load_bundle
from nmpsim.core.load import reset_machine
from nmpsim.core.state import CSR_COLUMN, Machine, Outcome, make_machine, start_cores
from nmpsim.diagnostics import UserError
from nmpsim.isa.csrs import CsrAddress
from nmpsim.isa.table import DRAM_BASE
from nmpsim.timing import get_costs

ENGINES = ("reference", "compiled")
SUITES = ("rv32ui", "rv32um", "rv32mi")
RAM_BYTES = 1 << 22
TURNS = 200
"""Between looks at ``tohost``."""
MAX_LOOKS = 2000
PASSED = 1
UNHANDLED = 1337
"""What the tests' environment makes of a trap that it does not expect: an odd number with it."""

LEFT_OUT = {
    "rv32ui-p-ma_data": "misaligned loads and stores trap, as the RISC-V manual allows",
    "rv32mi-p-breakpoint": "no triggers: to access tselect is an illegal instruction",
    "rv32mi-p-pmpaddr": "no memory protection: to access pmpcfg0 is an illegal instruction",
}
"""Test -> why it does not pass; docs/isa.md lists what of the manual is left out."""
REFUSED = {
    "rv32mi-p-ma_fetch": "the file has the flag of compressed instructions",
}
"""Test -> why ``nmpsim link`` refuses it."""


@attrs.frozen
class ElfImage:
    """Entry point, address of ``tohost``, segments and symbols of a test file."""

    entry: int
    tohost: int
    segments: tuple[tuple[int, bytes], ...]
    symbols: Mapping[str, int]
    bundle: Bundle | None = None
    """Bundle that ``nmpsim link`` makes of the file; None to load the file as it is."""


class NotATestError(Exception):
    """A file is not a test that this device can run."""


def read_elf(path: Path) -> ElfImage:
    """Read segments, entry and address of ``tohost``; raise NotATestError for other files."""
    try:
        with path.open("rb") as file:
            elf = ELFFile(file)
            if elf.elfclass != 32 or elf["e_machine"] != "EM_RISCV":
                raise NotATestError("no ELF file for RV32")
            segments = tuple(
                (segment["p_paddr"], segment.data().ljust(segment["p_memsz"], b"\0"))
                for segment in elf.iter_segments("PT_LOAD")
                if segment["p_memsz"]
            )
            table = elf.get_section_by_name(".symtab")
            has_symbols = isinstance(table, SymbolTableSection)
            symbols = {
                one.name: one["st_value"] for one in (table.iter_symbols() if has_symbols else ())
            }
            if "tohost" not in symbols:
                raise NotATestError("no symbol tohost")
            tohost = symbols["tohost"]
    except (ELFError, OSError) as error:
        raise NotATestError(f"not readable: {error}") from error
    for start, data in (*segments, (tohost, bytes(8))):
        if not DRAM_BASE <= start <= DRAM_BASE + RAM_BYTES - len(data):
            raise NotATestError(f"{start:#x} is not in the first {RAM_BYTES} bytes of DRAM")
    return ElfImage(elf["e_entry"], tohost, segments, symbols)


def link_elf(path: Path, elf: ElfImage) -> ElfImage:
    """Wrap a test as a bundle; raise NotATestError if it cannot be wrapped."""
    try:
        device = attrs.evolve(default_device(), cores_count=1).settings()
        data = link_program(read_bundle(path), (), (), (), device)
        return attrs.evolve(elf, bundle=parse_bundle(data, str(path)))
    except UserError as error:
        raise NotATestError(str(error)) from error


def load_machine(elf: ElfImage) -> Machine:
    """Build a machine of one core with a test in its DRAM."""
    config = attrs.evolve(default_device(), cores_count=1)
    if elf.bundle is not None:
        machine = load_bundle(elf.bundle, config)
        reset_machine(machine, elf.bundle)
        start_cores(machine, elf.entry)
        return machine
    nothing = np.zeros(0, np.uint8)
    machine = make_machine(config, nothing, DRAM_BASE, DRAM_BASE, RAM_BYTES, (1,), ())
    for start, data in elf.segments:
        at = start - DRAM_BASE
        machine.ram[at : at + len(data)] = np.frombuffer(data, np.uint8)
    start_cores(machine, elf.entry)
    return machine


def run_elf(elf: ElfImage, engine_name: str) -> str:
    """Run a test and return ``passed`` or the reason why it failed."""
    return run_machine(elf, engine_name)[1]


def run_machine(elf: ElfImage, engine_name: str) -> tuple[Machine, str]:
    """Run a test; return the machine, and ``passed`` or the reason why the test failed."""
    machine, engine = load_machine(elf), make_engine(engine_name)
    costs = get_costs(attrs.evolve(default_device(), cores_count=1))
    at = elf.tohost - (DRAM_BASE if elf.bundle is None else elf.bundle.rw_base)
    for _ in range(MAX_LOOKS):
        outcome = engine.run(machine, costs, TURNS, stop_at_layers=False)
        said = int(machine.ram[at : at + 4].view(np.uint32)[0])
        if said == PASSED:
            return machine, "passed"
        if said & UNHANDLED == UNHANDLED:
            cause = _csr(machine, CsrAddress.MCAUSE)
            return machine, f"unexpected trap {cause} at {_csr(machine, CsrAddress.MEPC):#x}"
        if said:
            return machine, f"case {said >> 1}"
        if outcome != Outcome.PAUSED:
            return machine, f"ended with {outcome.name.lower().replace('_', ' ')}"
    return machine, "no end"


def _csr(machine: Machine, csr: CsrAddress) -> int:
    return int(machine.cores[0]["csr"][CSR_COLUMN[csr]])


def list_tests(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the suite and the path of each test, sorted by name."""
    for suite in SUITES:
        for path in sorted(folder.glob(f"{suite}-p-*")):
            if not path.suffix:
                yield suite, path


@attrs.frozen
class RiscvTestResult:
    """Results of one test on each engine."""

    suite: str
    name: str
    found: tuple[str, ...]
    """By each engine."""

    @property
    def is_passed(self) -> bool:
        """Return whether the test passed on both engines."""
        return all(one == "passed" for one in self.found)

    @property
    def verdict(self) -> str:
        """Return the verdict that the table prints."""
        reason = (REFUSED if self.found == ("refused",) else LEFT_OUT).get(self.name)
        if self.is_passed:
            return "passed" if reason is None else "passed, though it is listed as left out"
        if reason is not None and len(set(self.found)) == 1:
            return f"left out: {reason} ({self.found[0]})"
        engines = zip(ENGINES, self.found, strict=True)
        return "FAILED: " + "; ".join(f"{engine} {found}" for engine, found in engines)

    @property
    def is_expected(self) -> bool:
        """Return whether the test passed or is listed as left out."""
        return self.verdict == "passed" or self.verdict.startswith("left out")


def run_all(folder: Path, is_linked: bool = False) -> list[RiscvTestResult]:
    """Run all tests of a folder on both engines; raise NotATestError for other files."""
    rows = []
    for suite, path in list_tests(folder):
        try:
            elf = read_elf(path)
            if is_linked and path.name not in REFUSED:
                elf = link_elf(path, elf)
            elif is_linked:
                rows.append(RiscvTestResult(suite, path.name, ("refused",)))
                continue
        except NotATestError as error:
            raise NotATestError(f"{path.name}: {error}") from error
        rows.append(
            RiscvTestResult(suite, path.name, tuple(run_elf(elf, engine) for engine in ENGINES))
        )
    return rows


def format_summary(rows: Sequence[RiscvTestResult]) -> Iterator[str]:
    """Yield a line for each suite with its numbers of passed, left out and failed tests."""
    for suite in SUITES:
        own = [row for row in rows if row.suite == suite]
        if own:
            passed = sum(row.is_passed for row in own)
            out = sum(row.verdict.startswith("left out") for row in own)
            failed = len(own) - passed - out
            yield f"{suite}: {passed} of {len(own)} passed, {out} left out, {failed} failed"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.riscv_tests", description=__doc__)
    parser.add_argument("folder", type=Path, help="with rv32ui-p-add and the like, built")
    parser.add_argument("--link", action="store_true", help="wrap each file by `nmpsim link`")
    given = parser.parse_args(arguments)
    folder = given.folder
    if not any(list_tests(folder)):
        print(f"skipped: no built tests (rv32ui-p-*, ...) in {folder}")
        return 0
    try:
        rows = run_all(folder, given.link)
    except NotATestError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    width = max(len(row.name) for row in rows)
    for row in rows:
        print(f"{row.name:{width}}  {row.verdict}")
    print(*format_summary(rows), sep="\n")
    return 0 if all(row.is_expected for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
