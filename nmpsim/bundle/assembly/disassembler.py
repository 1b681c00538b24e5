"""Disassembler of bundles and its analysis of code; the assembler can read its text.

The kinds of descriptors are not stored in the bundle; they are derived from the code.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.bundle.check import Range
from nmpsim.bundle.layout import CONSTANTS, DESCRIPTORS
from nmpsim.bundle.metadata import Tensor
from nmpsim.bundle.read import Bundle
from nmpsim.bundle.schema import format_metadata
from nmpsim.escape import escape_json, escape_line
from nmpsim.isa.assembly import disassemble_word
from nmpsim.isa.codec import RECORDS, DecodedInstruction, decode, decode_descriptor, get_word_range
from nmpsim.isa.expressions import PLAIN_NAME
from nmpsim.isa.table import REGISTERS, Word

# Analysis of code: branch targets, loaded addresses and used descriptors.

_PAIR_BYTES = 8


@attrs.frozen
class CodeAnalysis:
    """Analysis of a range of code: branch targets, loaded addresses and used descriptors."""

    start: int
    words: Sequence[int]
    targets: frozenset[int]
    """Targets of branches and jumps."""
    pairs: dict[int, tuple[int, int]]
    """Address of a ``lui`` followed by its ``addi`` -> register and the value they load."""
    descriptors: dict[int, str]
    """Address -> kind of the descriptor that a tensor instruction uses there."""
    uses: dict[int, int]
    """Address of a tensor instruction -> address of its descriptor."""


def analyze_code(words: Sequence[int], start: int) -> CodeAnalysis:
    """Analyze instruction words: find branch targets, loaded addresses and used descriptors."""
    decoded = [decode(word) for word in words]
    targets = frozenset(
        start + 4 * index + one.operands["offset"]
        for index, one in enumerate(decoded)
        if one is not None and "offset" in one.operands
    )
    pairs = {
        start + 4 * index: pair
        for index, (first, second) in enumerate(pairwise(decoded))
        if (pair := _absolute_pair(first, second)) and start + 4 * index + 4 not in targets
    }
    uses = _uses(decoded, start, pairs, targets)
    kinds = {address: kind for _, address, kind in uses}
    by_pc = {pc: address for pc, address, _ in uses}
    return CodeAnalysis(start, words, targets, pairs, kinds, by_pc)


def _absolute_pair(
    first: DecodedInstruction | None, second: DecodedInstruction | None
) -> tuple[int, int] | None:
    """Return register and value if two instructions are the expansion of ``la``."""
    if first is None or second is None:
        return None
    if first.instruction.mnemonic != "lui" or second.instruction.mnemonic != "addi":
        return None
    register = first.operands["rd"]
    if not second.operands["rd"] == second.operands["rs1"] == register:
        return None
    return register, first.operands["imm"] + second.operands["imm"] & 0xFFFF_FFFF


def _uses(
    decoded: Sequence[DecodedInstruction | None],
    start: int,
    pairs: dict[int, tuple[int, int]],
    targets: frozenset[int],
) -> list[tuple[int, int, str]]:
    """Return (pc, descriptor address, kind) where straight-line code determines the register."""
    found = []
    known: dict[int, int] = {}
    for index, one in enumerate(decoded):
        pc = start + 4 * index
        if pc in targets or one is None:
            known.clear()
        if one is None:
            continue
        kind = one.instruction.descriptor
        if kind is not None and one.operands["rs1"] in known:
            found.append((pc, known[one.operands["rs1"]], kind))
        _follow(one, pairs.get(pc - _PAIR_BYTES // 2), known)
    return found


def _follow(one: DecodedInstruction, pair: tuple[int, int] | None, known: dict[int, int]) -> None:
    """Update the known register values after an instruction."""
    written = one.operands.get("rd")
    if written is None:
        return
    if pair is not None:
        known[written] = pair[1]
    elif one.instruction.mnemonic == "addi" and one.operands["rs1"] in known:
        known[written] = known[one.operands["rs1"]] + one.operands["imm"] & 0xFFFF_FFFF
    else:
        known.pop(written, None)
    known.pop(0, None)


WIDTH = 96
"""Line length at which the words of a descriptor are wrapped."""
_WORDS_A_LINE = 8


def disassemble_bundle(bundle: Bundle, data: bool = False) -> str:
    """Disassemble the code and descriptors of a bundle, and its data if requested; return text.

    With ``data`` the text also has constants, symbols and metadata, so that
    :func:`~nmpsim.bundle.assembly.assemble` turns it back into the same bundle, if that was made by
    :class:`~nmpsim.bundle.write.BundleBuilder`. Without, the text is for reading only.
    """
    listing = _Listing(bundle)
    lines = [*listing.header(), *listing.absolute_symbols()]
    if data:
        described = escape_json(format_metadata(bundle.metadata).decode())
        lines += [f".metadata {described}", *listing.constants()]
    else:
        lines += listing.constants_summary()
    lines += [*listing.descriptors(), *listing.code()]
    if data:
        lines += listing.debug()
    return "\n".join(lines) + "\n"


class _Listing:
    """An analyzed bundle; its methods yield the lines of each part."""

    def __init__(self, bundle: Bundle) -> None:
        self._bundle = bundle
        self._constants = bundle.sections.get(CONSTANTS, (0, 0))
        self._descriptor_range = bundle.sections.get(DESCRIPTORS, (0, 0))
        self._facts = [analyze_code(self._words(r), r[0]) for r in bundle.text]
        self._kinds = self._usable_descriptors()
        self._labels: dict[int, list[str]] = defaultdict(list)
        self._names: dict[int, str] = {}
        self._absolute: list[str] = []
        self._place_symbols()
        self._add_local_labels()

    def header(self) -> Iterator[str]:
        """Yield the metadata as comments."""
        metadata = self._bundle.metadata
        yield f"# program {_quoted(metadata.program)} from {_quoted(metadata.source)}"
        yield f"# numerics {_quoted(metadata.numerics_label)}"
        for what, tensors in (("input", metadata.inputs), ("output", metadata.outputs)):
            for tensor in tensors:
                yield f"# {what} {_tensor_text(tensor)}"
        for layer in metadata.layers:
            host = f", on the host: {_quoted(layer.reason)}" if layer.placement == "host" else ""
            yield (
                f"# layer {layer.index}: {_quoted(layer.name)} ({_quoted(layer.op)}),"
                f" line {layer.line}, output {_tensor_text(layer.output)}{host}"
            )

    def absolute_symbols(self) -> Iterator[str]:
        """Yield read-write memory, symbols that are not labels, and the sizes of all symbols."""
        yield f".reserve {self._bundle.rw_bytes}"
        for name in self._absolute:
            yield f".set {_symbol(name)}, {self._bundle.symbols[name]:#x}"
        for name, nbytes in self._bundle.symbol_sizes.items():
            if nbytes:
                yield f".size {_symbol(name)}, {nbytes}"

    def constants(self) -> Iterator[str]:
        """Yield all bytes of the constants."""
        start, end = self._constants
        yield ".data"
        cuts = sorted({start, end, *(a for a in self._labels if start <= a <= end)})
        for low, high in zip(cuts, [*cuts[1:], end], strict=True):
            yield from self._label_lines(low, self._constants)
            yield from _data_lines(self._bytes((low, high)))

    def constants_summary(self) -> Iterator[str]:
        """Yield one comment for each constant."""
        start, end = self._constants
        for name, address in self._bundle.symbols.items():
            if start <= address < end:
                nbytes = self._bundle.symbol_sizes[name]
                yield f"# constant {_symbol(name)}: {nbytes} bytes at {address:#x}"

    def descriptors(self) -> Iterator[str]:
        """Yield descriptors with named words; data that no code refers to as plain words."""
        start, end = self._descriptor_range
        yield ".descriptors"
        address = start
        while address < end:
            yield from self._label_lines(address, self._descriptor_range)
            kind = self._kinds.get(address)
            if kind is None:
                nbytes = min(4, end - address)
                yield from _data_lines(self._bytes((address, address + nbytes)))
            else:
                nbytes = RECORDS[kind].nbytes
                yield from self._descriptor_lines(address, kind)
            address += nbytes
        if end > start:
            yield from self._label_lines(end, self._descriptor_range)
        for address, kind in sorted(self._kinds.items()):
            if not start <= address < end:
                yield f"# descriptor at {address:#x}, among other things:"
                yield from (f"# {line}" for line in self._descriptor_lines(address, kind))

    def code(self) -> Iterator[str]:
        """Yield instructions with labels and the layers to which they belong."""
        for facts, where in zip(self._facts, self._bundle.text, strict=True):
            yield ".text"
            layer = None
            skip = False
            for index, word in enumerate(facts.words):
                pc = facts.start + 4 * index
                yield from self._label_lines(pc, where)
                if skip:
                    skip = False
                    continue
                text, skip = self._instruction_text(facts, pc, word)
                if pc in facts.uses:
                    now = self._layer_of(facts.uses[pc])
                    if now != layer:
                        text += f"  # {now}"
                    layer = now
                yield f"    {text}"
            yield from self._label_lines(facts.start + 4 * len(facts.words), where)

    def debug(self) -> Iterator[str]:
        """Yield all bytes of the debug sections."""
        for name, contents in self._bundle.debug.items():
            yield f".section {name}"
            yield from _data_lines(np.frombuffer(contents, np.uint8))

    # --- parts ------------------------------------------------------------------------------

    def _bytes(self, where: Range) -> npt.NDArray[np.uint8]:
        base = self._bundle.image_base
        return self._bundle.image[where[0] - base : where[1] - base]

    def _words(self, where: Range) -> list[int]:
        data = self._bytes(where)
        words: list[int] = data[: len(data) // 4 * 4].view("<u4").tolist()
        return words

    def _usable_descriptors(self) -> dict[int, str]:
        """Return the descriptors that are in the image, do not overlap and have valid values."""
        base = self._bundle.image_base
        found = {a: kind for facts in self._facts for a, kind in facts.descriptors.items()}
        usable: dict[int, str] = {}
        behind = base
        for address, kind in sorted(found.items()):
            end = address + RECORDS[kind].nbytes
            inside = behind <= address and end <= base + len(self._bundle.image)
            if inside and address % 4 == 0 and self._is_possible(address, kind):
                usable[address] = kind
                behind = end
        return usable

    def _is_possible(self, address: int, kind: str) -> bool:
        values = self._values(address, kind)
        return all(values[w.name] <= get_word_range(w)[1] for w in RECORDS[kind])

    def _values(self, address: int, kind: str) -> dict[str, int]:
        end = address + RECORDS[kind].nbytes
        return decode_descriptor(kind, self._bytes((address, end)).tobytes())

    def _place_symbols(self) -> None:
        """Make a symbol a label if an item starts there, and a name if it is the only symbol."""
        users: dict[int, list[str]] = defaultdict(list)
        for name, address in self._bundle.symbols.items():
            users[address].append(name)
            if self._can_be_label(address):
                self._labels[address].append(_symbol(name))
            else:
                self._absolute.append(name)
        self._names = {a: _symbol(names[0]) for a, names in users.items() if len(names) == 1}

    def _can_be_label(self, address: int) -> bool:
        if self._constants[0] <= address <= self._constants[1] > self._constants[0]:
            return True
        start, end = self._descriptor_range
        if start <= address <= end > start:
            return (address - start) % 4 == 0 and not any(
                a < address < a + RECORDS[kind].nbytes for a, kind in self._kinds.items()
            )
        return any(low <= address <= high and address % 4 == 0 for low, high in self._bundle.text)

    def _add_local_labels(self) -> None:
        start, end = self._descriptor_range
        for address, kind in self._kinds.items():
            if address not in self._names and start <= address < end:
                self._add_local(address, f".L{kind}_{address:x}")
        for facts in self._facts:
            behind = facts.start + 4 * len(facts.words)
            for target in facts.targets:
                is_shown = facts.start <= target <= behind and target % 4 == 0
                if is_shown and target not in self._names:
                    self._add_local(target, f".L{target:x}")

    def _add_local(self, address: int, name: str) -> None:
        self._labels[address].append(name)
        self._names[address] = name

    def _label_lines(self, address: int, where: Range) -> Iterator[str]:
        """Yield the labels at an address, unless the adjacent next section has them."""
        if address == where[1] and self._starts_another(address, where):
            return
        for name in self._labels.get(address, ()):
            yield f"{name}:"

    def _starts_another(self, address: int, where: Range) -> bool:
        ranges = (self._constants, self._descriptor_range, *self._bundle.text)
        return any(r != where and r[0] <= address < r[1] for r in ranges)

    def _instruction_text(self, facts: CodeAnalysis, pc: int, word: int) -> tuple[str, bool]:
        """Return the text of an instruction, and whether it includes the next one."""
        pair = facts.pairs.get(pc)
        if pair is not None and pc + 4 not in self._labels:
            register, value = pair
            return f"la {REGISTERS[register]}, {self._names.get(value) or hex(value)}", True
        return disassemble_word(word, pc, self._names), False

    def _layer_of(self, address: int) -> str:
        kind = self._kinds.get(address)
        if kind is None:
            return "layer unknown"
        number = self._values(address, kind)["layer"]
        layers = self._bundle.metadata.layers
        name = f" {_quoted(layers[number].name)}" if number < len(layers) else ""
        return f"layer {number}{name}"

    def _descriptor_lines(self, address: int, kind: str) -> Iterator[str]:
        """Yield the lines of a directive; words that are zero are omitted."""
        values = self._values(address, kind)
        line = f"    .descriptor {kind}"
        for word in RECORDS[kind]:
            if not values[word.name]:
                continue
            part = f"{word.name}={self._word_text(word, values[word.name])}"
            if len(line) + len(part) + 4 > WIDTH:
                yield f"{line}, \\"
                line = f"        {part}"
            else:
                line += f", {part}"
        yield line

    def _word_text(self, word: Word, value: int) -> str:
        if word.choices:
            return word.choices[value]
        if word.address:
            return self._names.get(value) or hex(value)
        return str(value)


def _data_lines(data: npt.NDArray[np.uint8]) -> Iterator[str]:
    whole = len(data) // 4 * 4
    words: list[int] = data[:whole].view("<u4").tolist()
    for first in range(0, len(words), _WORDS_A_LINE):
        yield "    .word " + ", ".join(f"{w:#010x}" for w in words[first : first + _WORDS_A_LINE])
    if whole < len(data):
        yield "    .byte " + ", ".join(str(b) for b in data[whole:].tolist())


def _symbol(name: str) -> str:
    """Return a symbol as the assembler reads it."""
    return name if PLAIN_NAME.fullmatch(name) else escape_json(json.dumps(name))


def _quoted(text: str) -> str:
    """Return a text of the metadata for use in a comment."""
    return escape_line(text) if text.isprintable() and text else escape_json(json.dumps(text))


def _tensor_text(tensor: Tensor) -> str:
    quantization = "" if tensor.scale is None else f"[S:{tensor.scale!r} O:{tensor.offset}]"
    shape = " x ".join(str(n) for n in tensor.shape)
    return f"{_quoted(tensor.name)} {tensor.elem}{quantization}<{shape}> at {tensor.address:#x}"
