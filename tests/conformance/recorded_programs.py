"""Glow programs with the values that were recorded while Glow ran them.

What must be compared is read from the text here, by patterns of its own, so that nothing that
nmpsim leaves out can go unnoticed.
"""

from __future__ import annotations

import re
import runpy
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from shared_files import shared_folder, shared_names

Array = np.ndarray[Any, Any]
INSTRUCTION = re.compile(r"^  (\d+) %(\w+) = (\w+) (.*)$", re.MULTILINE)
WRITTEN = re.compile(r"@(?:out|inout) %(\w+)")
NO_WORK = ("allocactivation", "deallocactivation", "tensorview", "touch")
CPU_FLAVOURS = ("cpu", "cpumax", "cpuold")


@attrs.frozen
class Instruction:
    """Instruction in the text of a recorded program."""

    number: int
    name: str
    opcode: str
    written: tuple[str, ...]
    """Operands that it writes."""

    @property
    def key(self) -> str:
        return f"{self.number:04d}:{self.name}"

    def recorded_keys(self) -> Iterator[str]:
        """Yield the keys of the instruction's results in the recording."""
        for operand in self.written:
            yield f"act/{self.key}:{operand}"


@attrs.frozen
class Recorded:
    """Program of the shared folder; ``name`` is the path of its text there."""

    name: str

    @property
    def text(self) -> Path:
        return shared_folder() / self.name

    @property
    def flavour(self) -> str:
        return self.text.name.split(".")[0]

    @property
    def config(self) -> str:
        return self.text.parent.name

    def beside(self, ending: str) -> Path:
        return self.text.with_name(f"{self.flavour}.{ending}")


@attrs.define(eq=False, slots=False)
class Recording:
    """Recorded program with its arrays and instructions."""

    program: Recorded

    @cached_property
    def arrays(self) -> dict[str, Array]:
        with np.load(self.program.beside("npz")) as archive:
            return dict(archive)

    def inputs(self) -> dict[str, Array]:
        return self._of("input/")

    def outputs(self) -> dict[str, Array]:
        return self._of("output/")

    def activations(self) -> dict[str, Array]:
        """Return recorded results by key, except those that ``touch`` left undefined."""
        touched = {key for i in self._lines(("touch",)) for key in i.recorded_keys()}
        return {k: v for k, v in self.arrays.items() if k.startswith("act/") and k not in touched}

    def _of(self, prefix: str) -> dict[str, Array]:
        return {k.removeprefix(prefix): v for k, v in self.arrays.items() if k.startswith(prefix)}

    @cached_property
    def instructions(self) -> tuple[Instruction, ...]:
        """Return all computing instructions in order."""
        return tuple(i for i in self._lines(None) if i.opcode not in NO_WORK)

    def _lines(self, opcodes: tuple[str, ...] | None) -> Iterator[Instruction]:
        for number, name, opcode, rest in INSTRUCTION.findall(self.program.text.read_text()):
            if opcodes is None or opcode in opcodes:
                yield Instruction(int(number), name, opcode, tuple(WRITTEN.findall(rest)))

    @cached_property
    def incomplete(self) -> frozenset[str]:
        """Return the keys of insertions into a buffer that are not the last one.

        Until the last one, parts of the buffer are undefined, and the recording has what happened
        to lie there.
        """
        insertions = [i for i in self.instructions if i.opcode == "inserttensor"]
        last = {i.written[0]: i for i in insertions}
        return frozenset(i.key for i in insertions if last[i.written[0]] is not i)

    def comparable(self) -> dict[str, str]:
        """Return the key of the recorded result of each layer whose result is defined."""
        return {
            i.key: next(i.recorded_keys())
            for i in self.instructions
            if i.key not in self.incomplete
        }


def programs(pattern: str) -> list[str]:
    """Return the names of recorded programs with values whose path matches a regular expression."""
    names = shared_names("*.lir.txt")
    return [
        name
        for name in names
        if re.search(pattern, name)
        and ".before_opt." not in name
        and Recorded(name).beside("npz").exists()
    ]


def int8_programs() -> list[str]:
    """Return all Int8 programs that Glow's CPU backend ran, except the largest network."""
    flavours = "|".join(CPU_FLAVOURS)
    found = programs(rf"lir(_real)?/\w+/i8_\w+/({flavours})\.lir\.txt$")
    return [name for name in found if "resnet50" not in name]


RESNET50 = programs(r"lir/resnet50/i8_\w+/cpu\.")
"""The largest network; its recordings hold digests, and a recipe makes its weights."""
DECLARED = re.compile(r"^  %(\w+) = WeightVar .* const", re.MULTILINE)


def with_recipe(recording: Recording, bits: int = 8) -> dict[str, Array]:
    """Return recorded constants and the weights that the recipe makes, by the text's names."""
    recipe = runpy.run_path(str(shared_folder() / "lir/resnet50/weights_recipe.py"))
    made: dict[str, Array] = recipe["weights"](bits)
    known = {k: v for k, v in recording.arrays.items() if k.startswith("const/")}
    for name in DECLARED.findall(recording.program.text.read_text()):
        stem = name.split("__")[0]
        if f"const/{name}" not in known and stem in made:
            known[f"const/{name}"] = made[stem]
    return known


def are_same(actual: Array, expected: Array) -> bool:
    """Return whether arrays are equal bit for bit, or float32 within a unit in the last place."""
    if actual.dtype != expected.dtype or actual.shape != expected.shape:
        return False
    if actual.dtype != np.float32:
        return actual.tobytes() == expected.tobytes()
    return bool((ulps_apart(actual, expected) <= 1).all())


def ulps_apart(a: Array, b: Array) -> Array:
    """Return the distances of float32 values in units in the last place."""
    ordered = []
    for values in (a, b):
        bits = np.ascontiguousarray(values).view(np.int32).astype(np.int64)
        ordered.append(np.where(bits < 0, -(1 << 31) - bits, bits))
    return np.abs(ordered[0] - ordered[1])
