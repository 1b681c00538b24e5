"""Scalar programs: millions of RV32IM instructions a second of the host.

    python benchmarks/scalar.py [--millions N] [--rounds N] [--cores N,N]

Each runs with all cycles counted, with and without the check of the contract, on memory in the
scratchpad and in DRAM. If Debian's ``qemu-user`` is installed, it runs as a Linux program on
``qemu-riscv32``, too, which translates to the host's code and counts no cycles, and must give the
same answer. Prints a Markdown table with the fastest of some rounds, in seconds of the processor,
without QEMU's start.

With ``--cores`` all of so many cores run it at once: in their scratchpads, each in a part of DRAM
of its own, and all on the same DRAM, which the contract forbids, so that this is not checked. Of
each there are two numbers: by seconds of the processor on one thread; and by the clock on all
threads, so that no other work may be done meanwhile.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import struct
import subprocess
import tempfile
import time
from pathlib import Path

import attrs

import nmpsim
from nmpsim.bundle import Bundle, parse_bundle
from nmpsim.bundle.assembly import assemble
from nmpsim.config import DeviceConfig

QEMU = "qemu-riscv32"
QEMU_TIMES = 20
A0 = 10
SCRATCHPAD = 0x2000_0000
EXIT = "li a7, 93\n ecall"
BYTES = 1 << 14
OWN_PART = "la s0, memory\n csrr t0, mhartid\n slli t0, t0, 14\n add s0, s0, t0"
PROGRAMS = {
    "ten integer instructions in a loop": (
        10_000,
        """
 li t0, 1000
ten: addi a0, a0, 7
 xor a1, a0, t0
 slli a2, a1, 3
 add a3, a2, a0
 mul a4, a3, a1
 srli a5, a4, 2
 sub a6, a5, a0
 or a0, a6, a1
 addi t0, t0, -1
 bnez t0, ten
""",
    ),
    "copy of 4 KiB, word by word": (
        6_000,
        """
 li t0, 1024
 mv a2, s0
 lui a3, 2
 add a3, a3, s0
word: lw a4, 0(a2)
 add a0, a0, a4
 sw a0, 0(a3)
 addi a2, a2, 4
 addi a3, a3, 4
 addi t0, t0, -1
 bnez t0, word
""",
    ),
    "insertion sort of 64 words": (
        9_200,
        """
 li t0, 64
 mv a2, s0
draw: slli a3, a1, 13
 xor a1, a1, a3
 srli a3, a1, 17
 xor a1, a1, a3
 slli a3, a1, 5
 xor a1, a1, a3
 addi a1, a1, 11
 sw a1, 0(a2)
 addi a2, a2, 4
 addi t0, t0, -1
 bnez t0, draw
 addi a3, s0, 4
next: lw a4, 0(a3)
 mv a5, a3
down: beq a5, s0, put
 lw a6, -4(a5)
 bge a4, a6, put
 sw a6, 0(a5)
 addi a5, a5, -4
 j down
put: sw a4, 0(a5)
 addi a3, a3, 4
 bne a3, a2, next
 lw a4, 128(s0)
 add a0, a0, a4
""",
    ),
    "CRC-32 of 256 bytes, bit by bit": (
        14_500,
        """
 li a3, 0xEDB88320
 li a1, -1
 mv a2, s0
 addi a4, s0, 256
byte: lbu a5, 0(a2)
 add a5, a5, a0
 sb a5, 0(a2)
 xor a1, a1, a5
 li t0, 8
bit: andi a6, a1, 1
 srli a1, a1, 1
 beqz a6, even
 xor a1, a1, a3
even: addi t0, t0, -1
 bnez t0, bit
 addi a2, a2, 1
 bne a2, a4, byte
 xor a0, a0, a1
""",
    ),
    "Fibonacci numbers, recursively": (
        12_000,
        """
 li a1, 13
 lui sp, 3
 add sp, sp, s0
 jal ra, fib
 add a0, a0, a2
 j over
fib: li a2, 1
 slti a3, a1, 2
 bnez a3, back
 addi sp, sp, -12
 sw ra, 0(sp)
 sw a1, 4(sp)
 addi a1, a1, -1
 jal ra, fib
 sw a2, 8(sp)
 lw a1, 4(sp)
 addi a1, a1, -2
 jal ra, fib
 lw a3, 8(sp)
 add a2, a2, a3
 lw ra, 0(sp)
 addi sp, sp, 12
back: ret
over: nop
""",
    ),
}
"""Program -> instructions of a round, about; a round, which adds to a0 and finds memory at s0."""


DEVICE = attrs.evolve(nmpsim.default_device(), cores_count=1, limits_cycles=1_000_000_000_000)


def bundle_of(body: str, rounds: int, memory: str, config: DeviceConfig = DEVICE) -> Bundle:
    """Return a program whose memory is found by an instruction."""
    text = program_text(body, rounds, memory, "nmp.halt")
    nbytes = BYTES * (config.cores_count if memory == OWN_PART else 1)
    output = f".output memory, i8[S:1.0 O:0]<{nbytes}>\n" if "memory" in memory else ""
    program = assemble(output + text, "scalar.s", config.settings())
    return parse_bundle(program.build_bundle())


def program_text(body: str, rounds: int, memory: str, end: str) -> str:
    """Return a program that writes its memory and repeats ``body`` for a number of rounds."""
    return f"""
_start:
 {memory}
 li t0, {BYTES // 4}
 mv t1, s0
clear: sw t0, 0(t1)
 addi t1, t1, 4
 addi t0, t0, -1
 bnez t0, clear
 li a0, 0
 li a1, 12345
 li s1, {rounds}
round:
{body}
 addi s1, s1, -1
 bnez s1, round
 {end}
"""


@attrs.frozen
class Measured:
    """The fastest of some runs."""

    instructions: int
    cycles: int
    seconds: float
    answer: int


def measured(bundle: Bundle, *, strict: bool, rounds: int) -> Measured:
    """Measure runs on one core."""
    device, seconds = nmpsim.Device(DEVICE, threads=1), []
    for _ in range(rounds + 1):  # the first one compiles
        begin = time.process_time()
        report = device.run(bundle, {}, strict=strict)
        seconds.append(time.process_time() - begin)
    assert report.trap is None, report.trap
    core = device.machine_after(bundle).cores[0]
    answer = int(core.registers[A0]) & 0xFF
    return Measured(int(core.retired), report.device_cycles, min(seconds[1:]), answer)


def elf_of(code: bytes) -> bytes:
    """Return a Linux program of this code, with memory where the scratchpad is."""
    base, head = 0x1_0000, 52 + 2 * 32
    header = struct.pack(
        "<16s2H5I6H", b"\x7fELF\x01\x01\x01", 2, 243, 1, base + head, 52, 0, 0, 52, 32, 2, 0, 0, 0
    )
    text = struct.pack("<8I", 1, 0, base, base, head + len(code), head + len(code), 5, 4096)
    data = struct.pack("<8I", 1, 0, SCRATCHPAD, SCRATCHPAD, 0, BYTES, 6, 4096)
    return header + text + data + code


def children_seconds() -> float:
    """Of the processor, by processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def qemu_seconds(body: str, repeats: int, rounds: int) -> tuple[float, int]:
    """QEMU's time for so many repetitions, without its start, and the answer's low byte.

    It is measured by many times as many, next to which the start is small.
    """
    fastest, answer = [], 0
    with tempfile.TemporaryDirectory() as folder:
        for count in ((1 + QEMU_TIMES) * repeats, repeats):
            code = assemble(program_text(body, count, f"li s0, {SCRATCHPAD}", EXIT)).text
            path = Path(folder) / f"program{count}"
            path.write_bytes(elf_of(code))
            path.chmod(0o755)
            seconds = []
            for _ in range(rounds):
                begin = children_seconds()
                answer = subprocess.run([QEMU, str(path)], check=False).returncode
                seconds.append(children_seconds() - begin)
            fastest.append(min(seconds))
    return (fastest[0] - fastest[1]) / QEMU_TIMES, answer


def row(name: str, millions: float, rounds: int) -> str:
    """Return a program's line of the table."""
    per_round, body = PROGRAMS[name]
    repeats = max(int(millions * 1e6 / per_round), 1)
    columns = []
    for memory in (f"li s0, {SCRATCHPAD}", "la s0, memory"):
        bundle = bundle_of(body, repeats, memory)
        for strict in (False, True):
            one = measured(bundle, strict=strict, rounds=rounds)
            columns.append(f"{one.instructions / one.seconds / 1e6:.0f}")
    if shutil.which(QEMU) is None:
        columns.append("")
    else:
        seconds, answer = qemu_seconds(body, repeats, rounds)
        assert answer == one.answer, f"{name}: QEMU ends with {answer}, nmpsim with {one.answer}"
        columns.append(f"{one.instructions / seconds / 1e6:.0f}")
    return f"| {name} | {one.instructions / 1e6:.1f} M | {' | '.join(columns)} |"


def mips_of_cores(bundle: Bundle, config: DeviceConfig, strict: bool, rounds: int) -> str:
    """Of the processor on one thread, and of the clock on all; the fastest of some runs."""
    mips = []
    for threads, clock in ((1, time.process_time), (None, time.perf_counter)):
        device, seconds = nmpsim.Device(config, threads=threads), []
        for _ in range(rounds + 1):
            begin = clock()
            report = device.run(bundle, {}, strict=strict)
            seconds.append(clock() - begin)
        assert report.trap is None, report.trap
        mips.append(device.machine_after(bundle).cores.retired.sum() / min(seconds[1:]) / 1e6)
    return f"{mips[0]:.0f} / {mips[1]:.0f}"


def row_of_cores(name: str, millions: float, rounds: int, cores: int) -> str:
    """Return a program's line of the table, on all of some cores at once."""
    per_round, body = PROGRAMS[name]
    config = attrs.evolve(DEVICE, cores_count=cores)
    repeats = max(int(millions * 1e6 / per_round / cores), 1)
    columns = []
    for memory, ways in (
        (f"li s0, {SCRATCHPAD}", (False, True)),
        (OWN_PART, (False, True)),
        ("la s0, memory", (False,)),
    ):
        bundle = bundle_of(body, repeats, memory, config)
        columns += [mips_of_cores(bundle, config, strict, rounds) for strict in ways]
    return f"| {name} | {cores} | {' | '.join(columns)} |"


def main() -> None:
    """Print the table line by line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--millions", type=float, default=50, help="of instructions, about")
    parser.add_argument("--rounds", type=int, default=3, help="of which the fastest counts")
    parser.add_argument("--cores", help="such as 1,2,8,32; one core without other columns if left")
    given = parser.parse_args()
    if given.cores is not None:
        print("| program | cores | scratchpad | checked | own DRAM | checked | shared DRAM |")
        print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
        for name in PROGRAMS:
            for cores in map(int, given.cores.split(",")):
                print(row_of_cores(name, given.millions, given.rounds, cores), flush=True)
        return
    if shutil.which(QEMU) is None:
        print(f"{QEMU} is not installed (Debian: qemu-user): no times of it")
    print("| program | instructions | scratchpad | checked | DRAM | checked | QEMU |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name in PROGRAMS:
        print(row(name, given.millions, given.rounds), flush=True)


if __name__ == "__main__":
    main()
