"""Code for processors that are not at hand, in the emulator Bochs: a PC that has no BIOS.

Its read-only memory has data, the code, and what makes a processor of 1985 one with AMX.
"""

from __future__ import annotations

import functools
import shutil
import subprocess
from pathlib import Path

from llvmlite import binding

MODEL = "sapphire_rapids"
TRIPLE = "x86_64-unknown-none-elf"
DATA, DATA_BYTES = 0xFFF0_0000, 0xC_0000
"""Where data are in memory, and how much may be there."""
RESULTS, ROOM = 0x20_0000, 0x80_0000
"""Where code leaves what it is to answer, and where it may work."""
_MARK, _NONE = b"<<<results>>>", b"<<<no AMX>>>"
_BOOT = r"""
.section .boot,"ax"
.code16
boot:
  cli
  lgdtl %cs:(segments - boot + 0xf000)
  movl $0x11, %eax
  movl %eax, %cr0
  ljmpl $8, $protected
.code32
protected:
  movw $16, %ax
  movw %ax, %ds
  movw %ax, %es
  movw %ax, %ss
  movl $0x101003, 0x100000         # 4 GiB are where they are, in pages of 1 GiB
  movl $0x00000083, 0x101000
  movl $0x40000083, 0x101008
  movl $0x80000083, 0x101010
  movl $0xc0000083, 0x101018
  movl $0x100000, %eax
  movl %eax, %cr3
  movl $0x40620, %eax              # pages of 64 bits, vectors, XCR0
  movl %eax, %cr4
  movl $0xc0000080, %ecx
  movl $0x100, %eax
  xorl %edx, %edx
  wrmsr
  movl $0x80000033, %eax
  movl %eax, %cr0
  ljmpl $24, $long
.code64
long:
  movq $0x180000, %rsp
  movl $7, %eax
  xorl %ecx, %ecx
  cpuid
  notl %edx
  leaq none(%rip), %r12            # the answer, if there is no AMX
  movl $NONE_BYTES, %r13d
  testl $0x3000000, %edx
  jnz answer
  xorl %ecx, %ecx
  movl $0x600e7, %eax              # vectors and tiles
  xorl %edx, %edx
  xsetbv
  call kernel
  movl $RESULTS, %r12d
  movl $SIZE, %r13d
answer:
  leaq mark(%rip), %rsi
  movl $MARK_BYTES, %ecx
  movl $0xe9, %edx
  rep outsb
  movq %r12, %rsi
  movl %r13d, %ecx
  rep outsb
  movl $0x8900, %edx
  leaq shutdown(%rip), %rsi
  movl $8, %ecx
  rep outsb
  hlt
.align 8
table:
  .quad 0, 0x00cf9a000000ffff, 0x00cf92000000ffff, 0x00af9a000000ffff
segments:
  .word 31
  .long table
mark: .ascii "MARK"
none: .ascii "NONE"
shutdown: .ascii "Shutdown"
.section .reset,"ax"
.code16
  jmp boot
.code64
"""
_LAYOUT = f"""SECTIONS {{
  . = {DATA:#x};
  .text : {{ . = {DATA_BYTES:#x}; *(.text*) *(.ltext*) *(.rodata*) *(.lrodata*) }}
  . = 0xfffff000;
  .boot : {{ *(.boot) }}
  . = 0xfffffff0;
  .reset : {{ *(.reset) . = 16; }}
  /DISCARD/ : {{ *(.note*) *(.eh_frame*) *(.comment*) }}
}}"""
_SETTINGS = """romimage: file="{rom}"
vgaromimage: file="{screen}"
vga: extension=none
cpu: model={model}
megs: 32
display_library: {display}
log: "{log}"
port_e9_hack: enabled=1
panic: action=fatal
"""


_DISPLAYS = ("nogui", 'rfb, options="timeout=0"')
"""None, and, where a Bochs cannot do without (Debian's), one that waits for nobody to look."""


@functools.cache
def find_missing_requirement() -> str | None:
    """Return why Bochs cannot run code on this host, or None if it can."""
    bochs = shutil.which("bochs")
    if bochs is None:
        return "there is no bochs (Debian: bochs, from 2.8 on)"
    if shutil.which("ld") is None:
        return "there is no ld (Debian: binutils)"
    asked = subprocess.run([bochs, "--help", "cpu"], capture_output=True, text=True)
    if MODEL not in asked.stdout + asked.stderr:
        return "this bochs knows no processor with AMX (it is older than 2.8)"
    return None


def run(folder: Path, code: str, data: bytes, size: int) -> bytes | None:
    """Run the function ``kernel`` of an LLVM module; return ``size`` bytes from ``RESULTS``.

    None if this Bochs was built without AMX.
    """
    assert len(data) <= DATA_BYTES
    boot = _BOOT
    for name, value in (
        ("MARK_BYTES", len(_MARK)),
        ("NONE_BYTES", len(_NONE)),
        ('"MARK"', f'"{_MARK.decode()}"'),
        ('"NONE"', f'"{_NONE.decode()}"'),
        ("RESULTS", RESULTS),
        ("SIZE", size),
    ):
        boot = boot.replace(name, str(value))
    quoted = [line.replace('"', "\\22") for line in boot.splitlines()]
    (folder / "kernel.o").write_bytes(
        compile_object("\n".join([code, *(f'module asm "{line}"' for line in quoted)]))
    )
    (folder / "layout").write_text(_LAYOUT)
    link = ["ld", "--oformat=binary", "-T", "layout", "-o", "image", "kernel.o"]
    subprocess.run(link, cwd=folder, check=True)
    image = (folder / "image").read_bytes()
    (folder / "image").write_bytes(data + image[len(data) :])
    (folder / "screen").write_bytes(bytes(512))
    told = ""
    for display in _DISPLAYS:
        names = {"rom": folder / "image", "screen": folder / "screen", "log": folder / "log"}
        settings = _SETTINGS.format(model=MODEL, display=display, **names)
        (folder / "settings").write_text(settings)
        command = ["bochs", "-q", "-f", folder / "settings"]
        done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=60)
        _, mark, found = done.stdout.partition(_MARK)
        if mark:
            return None if found.startswith(_NONE) else found[:size]
        told += done.stderr.decode()
    raise AssertionError(told)


def compile_object(code: str) -> bytes:
    """Compile a module to an object file, optimized as kernels are."""
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    binding.initialize_native_asmparser()
    target = binding.Target.from_triple(TRIPLE)
    machine = target.create_target_machine(
        cpu="sapphirerapids", opt=3, reloc="pic", codemodel="small"
    )
    module = binding.parse_assembly(code)
    module.triple = TRIPLE
    options = binding.create_pipeline_tuning_options(speed_level=3)
    passes = binding.create_pass_builder(machine, options)
    passes.getModulePassManager().run(module, passes)
    return machine.emit_object(module)
