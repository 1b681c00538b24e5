"""Recorded Glow programs and golden files for the host operations."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
import pytest

from nmpsim.kernels.hostops import HostTensor

DTYPES = {
    "float": np.float32,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "index32": np.int32,
    "index64": np.int64,
    "bool": np.bool_,
}
TYPE = re.compile(r"(\w+)(?:\[S:(\S+) O:(-?\d+)\]\[[^\]]*\])?<([^>]*)>")
WEIGHT = re.compile(r"  %(\w+) = WeightVar (.*?) (?:const|mutable)")
INSTRUCTION = re.compile(r"  (\d+) %(\w+) = (\w+) ((?:@\w+ %\w+(?:, )?)*) ?(\{.*\})?")
ATTRIBUTE = re.compile(r"(\w+): (\[[^\]]*\]|[^,}]+)")
PROGRAMS = ("lir/*/*/*.lir.txt", "lir_real/*/*/*.lir.txt")


@attrs.frozen(eq=False)
class Step:
    """Inputs and outputs of one recorded instruction, by operand index."""

    where: str
    flavour: str
    opcode: str
    operands: list[HostTensor]
    attributes: dict[str, Any]
    digests: dict[int, str]
    """First 16 hex digits of sha256 of each output's bytes."""
    comparable: bool
    """False for a concatenation that is not complete yet: the rest of its buffer is undefined."""

    def matches(self, outputs: Mapping[int, npt.NDArray[Any]]) -> bool:
        return all(
            hashlib.sha256(np.ascontiguousarray(outputs[place]).tobytes()).hexdigest()[:16] == known
            for place, known in self.digests.items()
        )


def _value(text: str) -> Any:
    if text.startswith("["):
        return tuple(_value(part) for part in text[1:-1].split(", ") if part)
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return text


class Program:
    """LIR program with the values that were recorded while it ran."""

    def __init__(self, text_file: Path, root: Path) -> None:
        stem = text_file.name.removesuffix(".lir.txt")
        self.name = f"{text_file.parent.relative_to(root)}/{stem}"
        self.flavour = stem
        self.lines = text_file.read_text().splitlines()
        archive = text_file.with_name(f"{stem}.npz")
        facts = text_file.with_name(f"{stem}.tensors.json")
        self.arrays = np.load(archive) if archive.exists() else {}
        self.facts = json.loads(facts.read_text()) if facts.exists() else {}
        self.types: dict[str, re.Match[str]] = {}
        self.views: dict[str, str] = {}
        self.values: dict[str, npt.NDArray[Any]] = {}
        self.exact: dict[str, tuple[float, int]] = {}
        for key, fact in self.facts.items():
            if "scale" in fact:
                name = re.split(r"[/:]", key)[-1]
                self.exact[name] = fact["scale"], fact["offset"]

    def steps(self) -> Iterator[Step]:
        """Return the computing instructions whose inputs were recorded."""
        for line in self.lines:
            if weight := WEIGHT.match(line):
                self._declare(*weight.groups())
            elif instruction := INSTRUCTION.match(line):
                yield from self._step(*instruction.groups())

    def _declare(self, name: str, type_text: str) -> None:
        self.types[name] = _matched(type_text)
        for kind in ("const", "input"):
            if f"{kind}/{name}" in self.arrays:
                self.values[name] = self.arrays[f"{kind}/{name}"]

    def _step(
        self, number: str, name: str, opcode: str, operand_text: str, attribute_text: str | None
    ) -> Iterator[Step]:
        names = re.findall(r"@(\w+) %(\w+)", operand_text)
        if opcode == "allocactivation":
            self.types[name] = _matched(attribute_text or "")
        elif opcode == "tensorview":
            self.types[name] = _matched(attribute_text or "")
            self.views[name] = names[0][1]
        elif opcode != "deallocactivation":
            yield from self._computed(int(number), name, opcode, names, attribute_text or "")

    def _computed(
        self, number: int, name: str, opcode: str, names: list[tuple[str, str]], text: str
    ) -> Iterator[Step]:
        operands = [self._tensor(operand, kind != "in") for kind, operand in names]
        keys = {
            place: f"act/{number:04d}:{name}:{operand}"
            for place, (kind, operand) in enumerate(names)
            if kind != "in"
        }
        digests = {p: self.facts[key]["sha256"] for p, key in keys.items() if key in self.facts}
        if digests and all(o is not None for o in operands):
            part = opcode == "inserttensor" and f"@inout %{names[0][1]}," in self._rest(number)
            yield Step(
                where=f"{self.name}:{number} {opcode}",
                flavour=self.flavour,
                opcode=opcode,
                operands=[o for o in operands if o is not None],
                attributes={k: _value(v) for k, v in ATTRIBUTE.findall(text)},
                digests=digests,
                comparable=not part and opcode != "touch",
            )
        for place, key in keys.items():
            target = names[place][1]
            while target in self.views:
                target = self.views[target]
            self.values.pop(target, None)
            if key in self.arrays:
                self.values[target] = self.arrays[key]

    def _rest(self, number: int) -> str:
        first = next(i for i, text in enumerate(self.lines) if text.startswith(f"  {number} %"))
        return "\n".join(self.lines[first + 1 :])

    def _tensor(self, name: str, is_output: bool) -> HostTensor | None:
        elem, scale, offset, dims = self.types[name].groups()
        shape = tuple(int(d.split(":")[0]) for d in dims.split(" x ")) if dims else ()
        root = name
        while root in self.views:
            root = self.views[root]
        values = self.values.get(root)
        if values is None:
            if not is_output:
                return None
            values = np.zeros(shape, dtype=DTYPES[elem])
        exact_scale, exact_offset = self.exact.get(root, (float(scale or 1), int(offset or 0)))
        return HostTensor(
            values.reshape(shape), exact_scale, exact_offset, quantized=scale is not None
        )


def _matched(text: str) -> re.Match[str]:
    match = TYPE.search(text)
    assert match is not None, text
    return match


@pytest.fixture(scope="session")
def programs(shared: Path) -> Callable[[str], Iterator[Program]]:
    """Return the recorded programs whose file names match a pattern."""

    def matching(pattern: str) -> Iterator[Program]:
        for folder in PROGRAMS:
            for file in sorted(shared.glob(folder)):
                if "before_opt" not in file.name and re.search(pattern, str(file)):
                    yield Program(file, shared)

    return matching


Case = dict[str, npt.NDArray[Any]]


@pytest.fixture(scope="session")
def golden(shared: Path) -> Callable[[str], list[Case]]:
    """Return the cases of a golden file; keys have no case number."""

    def cases(name: str) -> list[Case]:
        archive = np.load(shared / "golden" / "glow" / name)
        found: list[Case] = [{} for _ in range(int(archive["ncases"]))]
        for key in archive.files:
            if key != "ncases":
                number, _, field = key.partition(".")
                found[int(number)][field] = archive[key]
        return found

    return cases
