"""Our disassembly against GNU objdump's, where that is installed."""

import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from nmpsim.isa.assembly import disassemble_word
from nmpsim.isa.codec import encode
from nmpsim.isa.table import INSTRUCTIONS, CsrAddress

OBJDUMP = shutil.which("riscv64-unknown-elf-objdump")
BASE = 0x8000_0000


def _words() -> list[int]:
    """Encode random scalar instructions whose operands GNU prints in the same form."""
    generator = random.Random(1)
    words = []
    for instruction in INSTRUCTIONS:
        if instruction.mnemonic.startswith(("nmp.", "fence")):
            continue
        for _ in range(8):
            operands = {}
            for field in instruction.format.fields:
                low, high = field.range
                step = 1 << field.lowest_bit
                operands[field.name] = generator.randint(low // step, high // step) * step
            if "csr" in operands:
                operands["csr"] = int(generator.choice(list(CsrAddress)))
            words.append(encode(instruction.mnemonic, operands))
    return words


def _plain(text: str) -> str:
    """Remove spaces between operands and convert numbers to decimal."""
    mnemonic, _, operands = text.strip().partition(" ")
    numbers = re.sub(
        r"0x[0-9a-f]+", lambda m: str(int(m.group(), 16) & 0xFFFF_FFFF), operands.replace(" ", "")
    )
    numbers = numbers.replace("mcores", str(int(CsrAddress.MCORES)))  # unknown to GNU
    return f"{mnemonic} {numbers}".strip()


def _gnu(words: list[int], folder: Path) -> list[str]:
    raw = folder / "code.bin"
    raw.write_bytes(b"".join(word.to_bytes(4, "little") for word in words))
    command = [OBJDUMP, "-D", "-b", "binary", "-m", "riscv:rv32", "-M", "no-aliases", str(raw)]
    command.append(f"--adjust-vma={BASE}")
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = re.findall(r"^\s*[0-9a-f]+:\t[0-9a-f]{8}\s+(.*)$", done.stdout, re.MULTILINE)
    return [_target_with_prefix(line.replace("\t", " ")) for line in found]


def _target_with_prefix(line: str) -> str:
    """Remove objdump's comments and add 0x to its hexadecimal targets."""
    return re.sub(r"(?<=[ ,])([0-9a-f]{6,8})$", r"0x\1", re.sub(r" *[<#].*", "", line))


@pytest.mark.skipif(OBJDUMP is None, reason="GNU objdump for RISC-V is not installed")
def test_scalar_instructions_disassemble_like_gnu(tmp_path: Path):
    words = _words()
    theirs = _gnu(words, tmp_path)
    assert len(theirs) == len(words)
    for index, (word, line) in enumerate(zip(words, theirs, strict=True)):
        ours = disassemble_word(word, BASE + 4 * index)
        assert _plain(ours) == _plain(line), f"{word:#010x}"
