"""Compares both engines with Spike on random programs: ``python -m tests.riscv_streams SPIKE``.

SPIKE is the program that `riscv-isa-sim <https://github.com/riscv-software-src/riscv-isa-sim>`_
builds. Each stream is a random program for RV32IM and Zicsr: all instructions, corner values,
branches and loops, loads and stores of all widths, changed code, misaligned accesses, faults and
illegal words with a trap handler. After every instruction these must be equal:

- the reference engine and Spike: pc, word, written register, accessed address, stored value and
  written CSR, as lines of commit logs;
- the compiled engine and the reference engine: pc, all registers and stored bytes.

At the end, both engines must have equal memory, CSRs and cycles. The exit code is 0 if everything
is equal. Each run uses fresh seeds; ``--seed`` repeats one.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import re
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count, islice
from pathlib import Path

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.analysis.trace.commits import format_commit
from nmpsim.config import default_device
from nmpsim.core.compiled.contract_entry import register_plain_functions
from nmpsim.core.compiled.engine import CompiledEngine
from nmpsim.core.compiled.event_loop import run_events
from nmpsim.core.compiled.kernel_arguments import make_recording_buffers
from nmpsim.core.engine_selection import make_engine
from nmpsim.core.reference.commits import Commit
from nmpsim.core.reference.engine import ReferenceEngine
from nmpsim.core.state import Machine, Outcome, make_machine, start_cores
from nmpsim.core.stop_conditions import make_stop_conditions
from nmpsim.isa.codec import decode, encode
from nmpsim.isa.csrs import CsrAddress
from nmpsim.isa.table import DRAM_BASE, INSTRUCTIONS, InstructionKind, list_mnemonics
from nmpsim.kernels.jit import compile_with_numba
from nmpsim.kernels.numba_internals import struct_pointer
from nmpsim.timing import get_costs

RAM_BYTES = 1 << 20
WINDOW = DRAM_BASE + RAM_BYTES - 4096
"""Address of the 4 KiB that loads and stores access, at the end of the memory."""
OUTSIDE = (0x4000_0000, DRAM_BASE + RAM_BYTES, 0xFFFF_FFFC)
"""Addresses without memory on nmpsim and on Spike."""
FREE = range(1, 28)
"""Registers with random values."""
LINK, COUNTER, POINTER, HANDLER = 28, 29, 30, 31
"""Registers for returns from fetch faults, loops, the window's middle, and the trap handler."""
CORNERS = (0, 1, 2, 0x7FF, 0x800, 0x7FFF_FFFF, 0x8000_0000, 0x8000_0001, 0xFFFF_FFFF, 0xFFFF_FFFE)
READABLE = ("MSTATUS", "MISA", "MTVEC", "MSCRATCH", "MEPC", "MCAUSE", "MTVAL", "MHARTID",
            "MINSTRET", "MINSTRETH", "INSTRET", "INSTRETH")  # fmt: skip
WRITABLE = ("MSTATUS", "MSCRATCH", "MEPC", "MCAUSE", "MTVAL")
"""CSRs whose values after a write are the same on nmpsim and Spike."""
MISSING = (0x7C0, 0x5A8, 0xFFF)
"""CSRs that neither has."""
IN_DRAM = "core   0: 3 0x8"
"""Beginning of the lines of Spike's commit log, without those of its boot code."""
OTHER_CSRS = re.compile(r" c(784_mstatush|1957_tcontrol) 0x[0-9a-f]+")
"""Writes by Spike's ``mret`` of CSRs that nmpsim does not have."""
CONFIG = attrs.evolve(default_device(), cores_count=1)

Instruction = tuple[str, dict[str, int]]
Group = list[Instruction | int]
"""Instructions and words that branches only enter at the beginning."""


class StreamGenerator:
    """Generator of a random program, a list of groups of instructions."""

    def __init__(self, seed: int, groups: int) -> None:
        self._random = random.Random(seed)
        self._groups = groups
        self._arithmetic = list_mnemonics(
            InstructionKind.IMMEDIATE,
            InstructionKind.REGISTER,
            InstructionKind.MULTIPLY,
            InstructionKind.DIVIDE,
        )
        self._formats = {one.mnemonic: one for one in INSTRUCTIONS}
        self._simple: dict[Callable[[], Group], int] = {
            self._compute: 50,
            self._set_constant: 8,
            self._access: 20,
            self._access_csr: 8,
            self._trap: 3,
            self._change_code: 1,
        }
        """Makers of groups that run to their end, with their shares."""

    def generate(self) -> bytes:
        """Return the code of the program, for the address DRAM_BASE."""
        handler = self._make_handler()
        groups = [
            [("jal", {"rd": 0, "offset": 4 * (len(handler) + 1)})],
            handler,
            self._begin(),
            *(self._make_group() for _ in range(self._groups)),
        ]
        starts = np.cumsum([0, *map(len, groups)]).tolist()
        words: list[int] = []
        for number, group in enumerate(groups):
            for one in group:
                if not isinstance(one, int) and one[1].get("skip"):
                    target = starts[min(number + one[1].pop("skip"), len(groups))]
                    one[1]["offset"] = 4 * (target - len(words))
                words.append(one if isinstance(one, int) else encode(*one))
        words += [encode("nmp.halt", {}), encode("jal", {"rd": 0, "offset": 0})]
        return np.array(words, np.uint32).tobytes()

    def _make_handler(self) -> Group:
        """Return after the trapped instruction, or to LINK after a fetch fault."""
        csr, x = CsrAddress, HANDLER
        return [
            ("csrrs", {"rd": x, "csr": csr.MTVAL, "rs1": 0}),
            ("csrrs", {"rd": x, "csr": csr.MCAUSE, "rs1": 0}),
            ("addi", {"rd": x, "rs1": x, "imm": -1}),
            ("beq", {"rs1": x, "rs2": 0, "offset": 16}),
            ("csrrs", {"rd": x, "csr": csr.MEPC, "rs1": 0}),
            ("addi", {"rd": x, "rs1": x, "imm": 4}),
            ("beq", {"rs1": 0, "rs2": 0, "offset": 8}),
            ("addi", {"rd": x, "rs1": LINK, "imm": 0}),
            ("csrrw", {"rd": 0, "csr": csr.MEPC, "rs1": x}),
            ("mret", {}),
        ]

    def _begin(self) -> Group:
        return [
            *load_constant(HANDLER, DRAM_BASE + 4),
            ("csrrw", {"rd": 0, "csr": CsrAddress.MTVEC, "rs1": HANDLER}),
            ("csrrw", {"rd": 0, "csr": CsrAddress.MINSTRET, "rs1": 0}),
            *load_constant(POINTER, WINDOW + 2048),
            *(one for register in (*FREE, LINK) for one in load_constant(register, self._value())),
        ]

    def _make_group(self) -> Group:
        kind = self._random.random()
        if kind < 0.08:
            return self._branch()
        if kind < 0.12:
            return self._jump()
        return self._loop() if kind < 0.13 else self._make_simple_group()

    def _make_simple_group(self) -> Group:
        (make,) = self._random.choices(list(self._simple), list(self._simple.values()))
        return make()

    def _value(self) -> int:
        return self._random.choice((*CORNERS, self._random.getrandbits(32)))

    def _register(self) -> int:
        """Return a register, often one of a few, so that instructions depend on each other."""
        return self._random.choice((0, 5, 6, 7, self._random.choice(FREE), POINTER))

    def _target(self) -> int:
        return self._random.choice((0, 5, 6, 7, *[self._random.choice(FREE) for _ in range(4)]))

    def _small(self) -> int:
        return self._random.choice((0, 1, -1, 2047, -2048, self._random.randrange(-2048, 2048)))

    def _compute(self) -> Group:
        mnemonic = self._random.choice((*self._arithmetic, "lui", "auipc", "fence"))
        values = {
            "rd": self._target,
            "rs1": self._register,
            "rs2": self._register,
            "shamt": lambda: self._random.randrange(32),
            "imm": self._small,
        }
        if mnemonic in ("lui", "auipc"):
            values["imm"] = lambda: self._random.getrandbits(20) << 12
        fields = self._formats[mnemonic].format.fields
        return [(mnemonic, {field.name: values[field.name]() for field in fields})]

    def _set_constant(self) -> Group:
        return [*load_constant(self._target(), self._value())]

    def _access(self) -> Group:
        """Load or store in the window: directly, or with a base register next to the address."""
        mnemonic = self._random.choice(list_mnemonics(InstructionKind.LOAD, InstructionKind.STORE))
        nbytes = self._formats[mnemonic].access_bytes
        offset = self._random.randrange(-2048, 2048)
        if self._random.random() > 0.05:
            offset &= -nbytes
        near = self._random.random() < 0.3
        base = self._random.choice(FREE) if near else POINTER
        step = self._random.randrange(-16, 16) if near else 0
        before: Group = [("addi", {"rd": base, "rs1": POINTER, "imm": max(offset - step, -2048)})]
        immediate = offset - max(offset - step, -2048) if near else offset
        own = {"rs1": base, "imm": immediate}
        if self._formats[mnemonic].kind is InstructionKind.STORE:
            own["rs2"] = self._register()
        else:
            own["rd"] = self._target()
        return [*(before if near and offset - step < 2048 else []), (mnemonic, own)]

    def _access_csr(self) -> Group:
        mnemonic = self._random.choice(("csrrw", "csrrs", "csrrc", "csrrwi", "csrrsi", "csrrci"))
        name = self._random.choice(READABLE)
        own = {"rd": self._target(), "csr": CsrAddress[name].value}
        source = "zimm" if mnemonic.endswith("i") else "rs1"
        if name in WRITABLE:
            own[source] = self._register()
        else:
            mnemonic, own[source] = self._random.choice(("csrrs", "csrrc")), 0
            own["rs1"] = own.pop(source)
        return [(mnemonic, own)]

    def _trap(self) -> Group:
        base = self._random.choice(FREE)
        address = load_constant(base, self._random.choice(OUTSIDE))
        access = self._random.choice((("lw", "rd"), ("sb", "rs2"), ("lhu", "rd"), ("sw", "rs2")))
        csr = self._random.choice((*MISSING, CsrAddress.MHARTID.value, CsrAddress.INSTRET.value))
        cases: list[Group] = [
            [("ecall", {})],
            [("ebreak", {})],
            [self._illegal_word()],
            [("csrrw", {"rd": self._target(), "csr": csr, "rs1": self._register()})],
            [*address, (access[0], {access[1]: self._register(), "rs1": base, "imm": 0})],
            [*address, ("jalr", {"rd": LINK, "rs1": base, "imm": 0})],
            [("jal", {"rd": self._target(), "offset": 6})],
            [("beq", {"rs1": self._register(), "rs2": self._register(), "offset": 10})],
            [("auipc", {"rd": base, "imm": 0}), ("jalr", {"rd": 5, "rs1": base, "imm": 10})],
        ]
        return self._random.choice(cases)

    def _illegal_word(self) -> int:
        """Return a word that is illegal on nmpsim and on Spike: not of the NMP, not compressed."""
        while True:
            word = self._random.getrandbits(32) | 3
            if decode(word) is None and word & 0x7F != 0x0B:
                return word

    def _change_code(self) -> Group:
        """Write an instruction over the one after ``fence.i``."""
        base, value = self._random.sample(FREE, 2)
        (new,) = self._compute()
        assert not isinstance(new, int)
        constant = load_constant(value, encode(*new))
        return [
            ("auipc", {"rd": base, "imm": 0}),
            *constant,
            ("sw", {"rs2": value, "rs1": base, "imm": 4 * (len(constant) + 3)}),
            ("fence.i", {}),
            ("addi", {"rd": 0, "rs1": 0, "imm": 0}),
        ]

    def _branch(self) -> Group:
        mnemonic = self._random.choice(list_mnemonics(InstructionKind.BRANCH))
        own = {"rs1": self._register(), "rs2": self._register()}
        return [(mnemonic, {**own, "skip": self._random.randrange(1, 6)})]

    def _jump(self) -> Group:
        if self._random.random() < 0.5:
            return [("jal", {"rd": self._target(), "skip": self._random.randrange(1, 4)})]
        base, odd = self._random.choice(FREE), self._random.randrange(2)
        back = ("jalr", {"rd": self._target(), "rs1": base, "imm": 12 + odd})
        return [("auipc", {"rd": base, "imm": 0}), back, self._illegal_word()]

    def _loop(self) -> Group:
        body = [one for _ in range(8) for one in self._make_simple_group()]
        times = self._random.randrange(2, 12)
        return [
            ("addi", {"rd": COUNTER, "rs1": 0, "imm": times}),
            *body,
            ("addi", {"rd": COUNTER, "rs1": COUNTER, "imm": -1}),
            ("bne", {"rs1": COUNTER, "rs2": 0, "offset": -4 * (len(body) + 1)}),
        ]


def load_constant(register: int, value: int) -> list[Instruction]:
    """Return the two instructions that set a register to a 32-bit value."""
    low = (value & 0xFFF) - ((value & 0x800) << 1)
    return [
        ("lui", {"rd": register, "imm": (value - low) & 0xFFFF_F000}),
        ("addi", {"rd": register, "rs1": register, "imm": low}),
    ]


def make_memory(seed: int, code: bytes) -> bytes:
    """Return the initial memory: the code, and random bytes in the window."""
    window = random.Random(seed).randbytes(DRAM_BASE + RAM_BYTES - WINDOW)
    return code.ljust(WINDOW - DRAM_BASE, b"\0") + window


def load_memory(memory: bytes) -> Machine:
    """Return a machine of one core with a program at the beginning of its DRAM."""
    nothing = np.zeros(0, np.uint8)
    machine = make_machine(CONFIG, nothing, DRAM_BASE, DRAM_BASE, RAM_BYTES, (1,), ())
    machine.ram[:] = np.frombuffer(memory, np.uint8)
    start_cores(machine, DRAM_BASE)
    return machine


def run_reference(memory: bytes) -> tuple[Machine, list[Commit]]:
    """Run a program on the reference engine; return the machine and all commits."""
    engine, machine = ReferenceEngine(), load_memory(memory)
    commits: list[Commit] = []
    engine.commits = commits.append
    costs = get_costs(CONFIG)
    while (outcome := engine.run(machine, costs, 1000, False)) == Outcome.PAUSED:
        pass
    assert outcome == Outcome.DONE, outcome
    return machine, commits


def find_first_difference(machine, settings, given, stops, steps):  # type: ignore[no-untyped-def]
    """Execute ``steps`` on the compiled engine; return the index of the first difference, or -1.

    ``steps`` has a row for each instruction: pc before it, written register and its value, address,
    bytes and value of a store.
    """
    m, costs = struct_pointer(machine), struct_pointer(settings)
    context = struct_pointer(given)
    expected = np.zeros(32, np.int64)
    for i in range(steps.shape[0]):
        if m.cores[0].pc != steps[i, 0]:
            return i
        run_events(m, costs, context, 1, False, stops)
        if steps[i, 1] > 0:
            expected[steps[i, 1]] = steps[i, 2]
        for register in range(32):
            if np.int64(m.cores[0].registers[register]) & 0xFFFF_FFFF != expected[register]:
                return i
        for byte in range(steps[i, 4]):
            stored = np.int64(m.ram[steps[i, 3] - m.shared[0].ram_base + byte])
            if stored != (steps[i, 5] >> (8 * byte)) & 0xFF:
                return i
    return -1


def list_steps(commits: Sequence[Commit]) -> npt.NDArray[np.int64]:
    """Return the rows of :func:`find_first_difference`."""
    rows = [
        (
            one.pc,
            one.rd,
            one.value,
            one.address,
            one.instruction.access_bytes if one.instruction and one.stored is not None else 0,
            one.stored or 0,
        )
        for one in commits
    ]
    return np.array(rows, np.int64).reshape(-1, 6)


class CompiledSteps:
    """Comparison of the compiled engine with commits, after each instruction and at the end."""

    def __init__(self) -> None:
        register_plain_functions()
        self._engine = CompiledEngine()
        self._compare = compile_with_numba(find_first_difference)

    def find_difference(
        self, memory: bytes, machine: Machine, commits: Sequence[Commit]
    ) -> str | None:
        """Return a description of the first difference, or None if everything is equal."""
        stepped, costs = load_memory(memory), get_costs(CONFIG)
        self._engine.run(stepped, costs, 0, False)
        context = self._engine._make_context(stepped, make_recording_buffers(1, 0))
        stops = make_stop_conditions(1, steps_per_turn=1)
        index = int(self._compare(stepped, costs, context, stops, list_steps(commits)))
        if index >= 0:
            return f"compiled engine differs at {describe_step(commits, index)}"
        return find_final_difference(memory, machine, stepped)


def find_final_difference(memory: bytes, *expected: Machine) -> str | None:
    """Run a program on the compiled engine; return a description of a difference at its end.

    None if the state is that of all ``expected`` machines.
    """
    costs = get_costs(CONFIG)
    fast, engine = load_memory(memory), make_engine("compiled")
    while (outcome := engine.run(fast, costs, 1000, False)) == Outcome.PAUSED:
        pass
    names = [
        name
        for name in ("cores", "ram", "control", "scratchpad", "shared")
        for one in expected
        if getattr(one, name).tobytes() != getattr(fast, name).tobytes()
    ]
    if names or outcome != Outcome.DONE:
        return f"compiled engine differs at the end: {outcome.name} {', '.join(names)}"
    return None


def describe_step(commits: Sequence[Commit], index: int) -> str:
    """Return the number and the lines of a commit and of the one before it."""
    lines = [format_commit(one) for one in commits[max(index - 1, 0) : index + 1]]
    return "\n  ".join((f"instruction {index}:", *lines))


def iterate_spike_lines(spike: Path, memory: bytes) -> Iterator[str]:
    """Run a program on Spike and yield the lines of its commit log after the boot code.

    Spike executes the endless loop at the end of the program until the iterator is closed.
    """
    with tempfile.NamedTemporaryFile(suffix=".elf") as elf:
        elf.write(make_elf_file(memory))
        elf.flush()
        isa = ("--isa=rv32im_zicsr_zifencei_zicntr", "--priv=m", "--pmpregions=0")
        ram = f"-m{DRAM_BASE:#x}:{RAM_BYTES:#x}"
        with subprocess.Popen(
            [spike, *isa, ram, "--log-commits", elf.name],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            encoding="ascii",
        ) as process:
            assert process.stderr is not None
            try:
                for line in process.stderr:
                    if line.startswith(IN_DRAM):
                        line = line.rstrip()
                        yield OTHER_CSRS.sub("", line) if " c784_" in line else line
            finally:
                process.kill()


def make_elf_file(memory: bytes) -> bytes:
    """Return an ELF file with one segment for the whole memory."""
    size, sections, data = len(memory), 84, 128
    header = (b"\x7fELF\1\1\1", 2, 243, 1, DRAM_BASE, 52, sections, 0, 52, 32, 1, 40, 1, 0)
    return (
        struct.pack("<16sHHIIIIIHHHHHH", *header)
        + struct.pack("<8I", 1, data, DRAM_BASE, DRAM_BASE, size, size, 7, 4)
        # Spike requires a section of names: the zero byte before the data.
        + struct.pack("<10I", 0, 3, 0, 0, data - 1, 1, 0, 0, 1, 0).ljust(data - sections, b"\0")
        + memory
    )


def find_spike_difference(spike: Path, memory: bytes, commits: Sequence[Commit]) -> str | None:
    """Return a description of the first difference from Spike, or None if all lines are equal."""
    with contextlib.closing(iterate_spike_lines(spike, memory)) as others:
        for index, one in enumerate(commits[:-1]):  # Spike does not have nmp.halt
            if one.cause is None:
                line, other = format_commit(one).split(" # ")[0], next(others, "no line")
                if line != other:
                    return f"Spike differs at {describe_step(commits, index)}\n  {other} (Spike)"
    return None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.riscv_streams",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("spike", type=Path, help="the program `spike`, built")
    parser.add_argument("--seed", type=int, help="seed of the first stream; default: fresh")
    parser.add_argument("--streams", type=int, default=1 << 30, help="number of streams")
    parser.add_argument("--instructions", type=int, default=1_000_000, help="stop after so many")
    parser.add_argument("--groups", type=int, default=8000, help="length of a stream")
    options = parser.parse_args(arguments)
    if not options.spike.is_file():
        print(f"skipped: {options.spike} is no file", file=sys.stderr)
        return 0
    first = random.SystemRandom().getrandbits(48) if options.seed is None else options.seed
    compiled, done, traps, begin = CompiledSteps(), 0, 0, time.monotonic()
    for number in islice(count(), options.streams):
        seed = first + number
        memory = make_memory(seed, StreamGenerator(seed, options.groups).generate())
        machine, commits = run_reference(memory)
        found = find_spike_difference(options.spike, memory, commits) or compiled.find_difference(
            memory, machine, commits
        )
        if found is not None:
            print(f"FAILED: --seed {seed} --streams 1 --groups {options.groups}: {found}")
            return 1
        done += len(commits)
        traps += sum(one.cause is not None for one in commits)
        if sys.stderr.isatty() or number % 20 == 0:
            print(f"{done:,} instructions in {time.monotonic() - begin:.0f} s", file=sys.stderr)
        if done >= options.instructions:
            break
    print(
        f"{number + 1} streams from seed {first}: {done:,} instructions, {traps:,} of them traps;"
        " all equal on the reference engine, the compiled engine and Spike"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
