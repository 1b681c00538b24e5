"""Two-pass assembler: from text to the contents of a bundle.

The first pass places everything, the second makes the bytes. Errors are collected over the whole
text, so that one run reports all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import PurePath
from typing import Any

import attrs
import numpy as np

from nmpsim.bundle.assembly.directives import execute_directive, parse_raw_words
from nmpsim.bundle.assembly.draft import (
    AssemblySection,
    LayerRecord,
    ProgramDraft,
    Statement,
    Variable,
    split_statements,
)
from nmpsim.bundle.layout import CONSTANTS, DESCRIPTORS, TEXT
from nmpsim.bundle.metadata import Layer, Metadata, ProgramStep, Tensor
from nmpsim.bundle.schema import parse_metadata
from nmpsim.bundle.write import BundleBuilder
from nmpsim.diagnostics import Diagnostic, Place, UserError, did_you_mean
from nmpsim.isa.assembly import PendingInstruction, parse_instruction
from nmpsim.isa.expressions import ExpressionToken, Scope, SourceError, tokenize

ENTRY = "_start"
"""Label where all cores start, unless ``.entry`` names another one."""
NUMERICS = "assembly"
"""Value of the metadata's ``numerics`` for assembled programs."""


@attrs.frozen
class AssembledProgram:
    """Assembled program: code, data, symbols and metadata."""

    text: bytes
    data: bytes
    """Constants, read-only."""
    descriptors: bytes
    rw_bytes: int
    symbols: Mapping[str, tuple[int, int]]
    """Name -> address and bytes."""
    metadata: Metadata
    debug: Mapping[str, bytes]
    """Contents of the debug sections."""

    def build_bundle(self) -> bytes:
        """Build a bundle from the program and return the bytes of its file."""
        builder = BundleBuilder()
        builder.add_constant("", self.data)
        builder.add_descriptor(self.descriptors)
        builder.add_code(np.frombuffer(self.text, dtype="<u4"))
        builder.reserve("", self.rw_bytes)
        for name, (address, nbytes) in self.symbols.items():
            builder.define_symbol(name, address, nbytes)
        for name, contents in self.debug.items():
            builder.set_debug_section(name, (contents,))
        return bytes(builder.build_file(self.metadata))


def assemble(
    text: str, file: str = "<text>", device: Mapping[str, Any] | None = None
) -> AssembledProgram:
    """Assemble the text of a program; raise UserError with all errors in the text.

    Parameters
    ----------
    text : str
        Assembly text.
    file : str
        Name for error messages.
    device : mapping, optional
        Settings of the device file to record in the bundle.

    Raises
    ------
    UserError
        With all errors (ASM001 to ASM003) of the text.
    """
    draft = ProgramDraft()
    for statement in split_statements(text, file):
        with _collecting(draft, statement):
            _first_pass(draft, statement)
    program = _SecondPass(draft).program(file, device or {})
    if draft.problems:
        raise UserError(sorted(dict.fromkeys(draft.problems), key=_line_of))
    return program


@contextmanager
def _collecting(draft: ProgramDraft, statement: Statement) -> Iterator[None]:
    """Record an error of the block and continue after it."""
    try:
        yield
    except SourceError as error:
        draft.problems.append(statement.make_diagnostic(error))


def _line_of(problem: Diagnostic) -> int:
    return problem.place.line or 0 if problem.place else 0


def _first_pass(draft: ProgramDraft, statement: Statement) -> None:
    data = parse_raw_words(statement.text)
    if data is not None:
        draft.section.append(len(data), lambda _, __: data, statement)
        return
    try:
        tokens = statement.tokens()
    except SourceError as error:  # its labels are defined nevertheless
        _take_labels(draft, tokenize(statement.text[: error.column - 1]))
        raise
    tokens = _take_labels(draft, tokens)
    if not tokens:
        return
    name, *operands = tokens
    if name.kind != "name" or name.quoted:
        raise SourceError(
            "ASM001",
            "a statement does not start with a name",
            name.column,
            found=name.text,
            expected="an instruction, a directive or a label",
        )
    if name.text.startswith("."):
        execute_directive(name, draft, statement, operands)
    else:
        _add_instruction(name, operands, draft, statement)


def _take_labels(draft: ProgramDraft, tokens: list[ExpressionToken]) -> list[ExpressionToken]:
    """Define the labels at the begin of a statement; return the remaining tokens."""
    count = 0
    while any(t.kind == "mark" and t.text == ":" for t in tokens[2 * count + 1 : 2 * count + 2]):
        count += 1
    rest = tokens[2 * count :]
    is_descriptor = bool(rest) and rest[0].text == ".descriptor"
    for label in tokens[: 2 * count : 2]:
        if label.kind != "name":
            raise SourceError(
                "ASM001",
                "a label is not a name",
                label.column,
                found=label.text,
                expected="a name before the colon",
            )
        draft.define_label(label, DESCRIPTORS if is_descriptor else draft.current)
    return rest


def _add_instruction(
    name: ExpressionToken,
    operands: list[ExpressionToken],
    draft: ProgramDraft,
    statement: Statement,
) -> None:
    if draft.current != TEXT or draft.section.nbytes % 4:
        raise SourceError(
            "ASM001",
            "an instruction is not allowed here",
            name.column,
            found=f"an instruction in section {draft.current} at byte {draft.section.nbytes}",
            expected="an instruction in section .text, at a multiple of 4",
        )
    for pending in parse_instruction(name, operands, statement.end_column, draft.get_symbol_value):
        draft.section.append(4, partial(_instruction_bytes, pending), statement)


def _instruction_bytes(pending: PendingInstruction, pc: int, scope: Scope) -> bytes:
    return pending.encode_word(pc, scope).to_bytes(4, "little")


class _SecondPass:
    """Evaluates all symbols and makes the contents of the sections."""

    def __init__(self, draft: ProgramDraft) -> None:
        self._draft = draft
        self._addresses = draft.compute_section_addresses()
        self._values = dict(draft.numbers)
        for name, (section, offset) in draft.labels.items():
            self._values[name] = self._addresses[section] + offset
        for name, (expression, statement) in draft.deferred.items():
            with _collecting(draft, statement):
                self._values[name] = expression.evaluate(self._value)

    def program(self, file: str, device: Mapping[str, Any]) -> AssembledProgram:
        """Return the assembled program; it is meaningless if the draft has problems afterwards."""
        draft = self._draft
        contents = {
            name: self._section_bytes(section, self._addresses[name])
            for name, section in draft.sections.items()
        }
        text = contents[TEXT]
        return AssembledProgram(
            text=text + bytes(-len(text) % 4),
            data=contents[CONSTANTS],
            descriptors=contents[DESCRIPTORS],
            rw_bytes=draft.rw_bytes,
            symbols=self._symbols(),
            metadata=self._metadata(file, device),
            debug={name: self._section_bytes(s, 0) for name, s in draft.debug.items()},
        )

    def _section_bytes(self, section: AssemblySection, start: int) -> bytes:
        chunks = []
        for item in section.items:
            address = start + item.offset
            with _collecting(self._draft, item.statement):
                chunks.append(item.emit(address, partial(self._value, here=address)))
        return b"".join(chunks)

    def _value(self, name: ExpressionToken, here: int | None = None) -> int:
        if name.text == "." and not name.quoted and here is not None:
            return here
        if name.text not in self._values:
            raise self._draft.make_unknown_symbol_error(name)
        return self._values[name.text]

    def _symbols(self) -> dict[str, tuple[int, int]]:
        sizes = {name: v.type.nbytes for name, v in self._draft.variables.items()}
        for token, expression, statement in self._draft.sizes:
            with _collecting(self._draft, statement):
                self._value(token)
                sizes[token.text] = expression.evaluate(self._value)
        return {
            name: (value & 0xFFFF_FFFF, sizes.get(name, 0))
            for name, value in self._values.items()
            if name not in self._draft.local
        }

    def _metadata(self, file: str, device: Mapping[str, Any]) -> Metadata:
        draft = self._draft
        if draft.metadata is not None:
            return self._given_metadata(*draft.metadata)
        layers = tuple(self._layer(n, record) for n, record in enumerate(draft.layers))
        return Metadata(
            program=PurePath(file).stem,
            source=PurePath(file).name,
            numerics=NUMERICS,
            device=dict(device),
            inputs=tuple(_tensor(draft.variables[name]) for name in draft.inputs),
            outputs=tuple(_tensor(draft.variables[name]) for name in draft.outputs),
            layers=layers,
            steps=(ProgramStep("device", tuple(range(len(layers))), self._entry(file)),),
        )

    def _given_metadata(self, text: str, statement: Statement) -> Metadata:
        place = statement.get_place(1)
        try:
            return parse_metadata(text.encode("utf-8", "surrogatepass"), place)
        except UserError as error:
            self._draft.problems += [attrs.evolve(d, code="ASM001") for d in error.diagnostics]
        return Metadata("", "", NUMERICS, {}, (), (), (), ())

    def _layer(self, index: int, record: LayerRecord) -> Layer:
        output = Tensor("", "i8", (), 0)
        with _collecting(self._draft, record.statement):
            variable = self._draft.variables.get(record.output.text)
            if variable is None:
                raise SourceError(
                    "ASM002",
                    f"{record.output.text!r} is not a tensor",
                    record.output.column,
                    expected="a name that .input, .output or .buffer declared",
                    hint=did_you_mean(record.output.text, self._draft.variables),
                )
            output = _tensor(variable)
        return Layer(
            index=index,
            name=record.name,
            number=index,
            line=record.statement.line,
            op=record.op,
            placement="device",
            output=output,
            operand=output.name,
            barrier=record.barrier,
        )

    def _entry(self, file: str) -> int:
        if self._draft.entry is not None:
            token, statement = self._draft.entry
            with _collecting(self._draft, statement):
                return self._value(token)
        elif ENTRY in self._values:
            return self._values[ENTRY]
        else:
            self._draft.problems.append(
                Diagnostic(
                    "ASM002",
                    "the program has no entry point",
                    Place(file),
                    expected=f"the label {ENTRY}, or a directive `.entry LABEL`",
                )
            )
        return 0


def _tensor(variable: Variable) -> Tensor:
    quant = variable.type.quant
    return Tensor(
        variable.name,
        variable.type.elem,
        variable.type.shape,
        variable.address,
        quant.scale if quant else None,
        quant.offset if quant else None,
    )
