"""Run C code from a standard RISC-V compiler on both engines."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from core_machines import IMAGE_BASE, Program, registers, run_both

COMPILER = "riscv64-unknown-elf-gcc"
OBJCOPY = "riscv64-unknown-elf-objcopy"

SOURCE = r"""
static unsigned state = 12345;
static unsigned next(void) { state = state * 1103515245u + 12345u; return state >> 8; }

static int gcd(int a, int b) { while (b) { int r = a % b; a = b; b = r; } return a; }

__attribute__((section(".text.first"), naked)) void _start(void)
{
    __asm__ volatile("li sp, 0x2000f000\n call work\n .word 0x0800400b");
}

/* Sort, divide, multiply wide, follow pointers: a checksum of all of it. */
unsigned work(void)
{
    volatile short values[64];
    unsigned sum = 0;
    for (int i = 0; i < 64; i++) values[i] = (short)next();
    for (int i = 1; i < 64; i++)
        for (int j = i; j > 0 && values[j - 1] > values[j]; j--) {
            short v = values[j]; values[j] = values[j - 1]; values[j - 1] = v;
        }
    for (int i = 0; i < 64; i++) {
        long long wide = (long long)values[i] * (int)(next() | 1u);
        sum = sum * 31u + (unsigned)values[i] + (unsigned)(wide >> 16);
        sum ^= (unsigned)gcd(values[i], (int)(next() % 1000u));
    }
    return sum;
}
"""


def expected() -> int:
    """Return the result of the C program, computed in Python."""
    state, sum_ = 12345, 0

    def following() -> int:
        nonlocal state
        state = (state * 1103515245 + 12345) & 0xFFFF_FFFF
        return state >> 8

    def int16(value: int) -> int:
        return (value & 0x7FFF) - (value & 0x8000)

    def gcd(a: int, b: int) -> int:
        while b:
            r = abs(a) % abs(b)
            a, b = b, -r if a < 0 else r
        return a

    values = sorted(int16(following()) for _ in range(64))
    for value in values:
        wide = value * (following() | 1)
        sum_ = (sum_ * 31 + value + (wide >> 16)) & 0xFFFF_FFFF
        sum_ ^= gcd(value, following() % 1000) & 0xFFFF_FFFF
    return sum_


@pytest.mark.skipif(shutil.which(COMPILER) is None, reason=f"{COMPILER} is not installed")
@pytest.mark.parametrize("optimisation", ["-O0", "-O2"])
def test_a_c_program_gives_the_same_results_on_both_engines(
    tmp_path: Path, optimisation: str
) -> None:
    source, linked, binary = (tmp_path / name for name in ("p.c", "p.elf", "p.bin"))
    source.write_text(SOURCE)
    script = tmp_path / "p.ld"
    script.write_text(
        f"SECTIONS {{ . = {IMAGE_BASE:#x}; .text : {{ *(.text.first) *(.text*) *(.rodata*) }}\n"
        " . = 0xA0000000; .data : { *(.sdata*) *(.data*) *(.sbss*) *(.bss*) } }"
    )
    flags = ["-march=rv32im", "-mabi=ilp32", "-nostdlib", "-ffreestanding", optimisation]
    # No libgcc: whatever the program needs beyond RV32IM would be missing at the link.
    command = [COMPILER, *flags, "-T", str(script), "-o", str(linked), str(source)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    sections = ["-j", ".text"]
    subprocess.run([OBJCOPY, "-O", "binary", *sections, linked, binary], check=True)
    data = tmp_path / "d.bin"
    subprocess.run([OBJCOPY, "-O", "binary", "-j", ".data", linked, data], check=True)
    m = run_both(Program(image=binary.read_bytes(), ram=data.read_bytes()))
    assert registers(m)[10] == expected()
