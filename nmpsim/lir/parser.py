"""Parser of LIR text: recursive descent over the tokens of each line.

``parse`` checks the grammar and the opcodes' names; what the program means is for ``verify``.
An error costs the line it is in, so one call reports many.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from nmpsim.diagnostics import MAX_ERRORS, Diagnostic, Place, UserError, fail
from nmpsim.input_files import read_text
from nmpsim.lir.line import LineCursor, TokenKind, split_lines
from nmpsim.lir.line_parser import parse_instruction, parse_weight
from nmpsim.lir.nodes import Instruction, Module, WeightVar


def parse(text: str, file: str | None = None) -> Module:
    """Parse LIR text; return a module that has no values of constants yet.

    ``file`` names the text in messages. Raises :class:`~nmpsim.diagnostics.UserError` with up to
    ``MAX_ERRORS`` diagnostics.
    """
    return _Parser(text, file).module()


def parse_file(path: Path) -> Module:
    """Parse a LIR file in UTF-8; return a module that has no values of constants yet."""
    hint = "Use a LIR text in UTF-8, or an undamaged TFLite or ONNX model."
    return parse(read_text(path, "program", hint=hint), str(path))


class _ErrorLimitError(Exception):
    """Raised when enough errors have been reported."""


class _Parser:
    """Parser state: the lines of a text and the current position."""

    def __init__(self, text: str, file: str | None) -> None:
        self._lines = split_lines(text)
        self._file = file
        self._next = 0
        self._errors: list[Diagnostic] = []

    def module(self) -> Module:
        try:
            name, weights, instructions = self._program()
        except _ErrorLimitError:
            raise UserError(self._errors) from None
        if self._errors:
            raise UserError(self._errors)
        return Module(name, tuple(weights), tuple(instructions), file=self._file)

    def _program(self) -> tuple[str, list[WeightVar], list[Instruction]]:
        name = self._function()
        weights: list[WeightVar] = []
        instructions: list[Instruction] = []
        if self._opening("declare"):
            self._section(lambda line: self._declaration(line, weights), until="code")
        if self._opening("code"):
            self._section(lambda line: instructions.append(parse_instruction(line)))
        if not self._errors and (extra := self._line()):
            self._report(extra.make_error("nothing after the last }"))
        return name, weights, instructions

    def _line(self) -> LineCursor | None:
        """Return the next nonempty line without advancing past it."""
        while self._next < len(self._lines):
            line = LineCursor(self._lines[self._next], self._next + 1, self._file)
            if line.peek().kind is not TokenKind.END:
                return line
            self._next += 1
        return None

    def _report(self, error: UserError) -> None:
        self._errors += error.diagnostics
        if len(self._errors) >= MAX_ERRORS:
            raise _ErrorLimitError

    def _report_end(self, expected: str) -> None:
        last = len(self._lines)
        place = Place(self._file, last, len(self._lines[-1]) + 1)
        is_empty = not any(line.strip() for line in self._lines)
        error = fail(
            "LIR002",
            "unexpected end of the program",
            place=place,
            found="an empty text" if is_empty else "the end of the text",
            expected=expected,
            hint="Use a file with a program."
            if is_empty
            else "Write the file again: it may be truncated.",
        )
        self._report(error)

    def _function(self) -> str:
        line = self._line()
        if line is None:
            self._report_end("function NAME")
            return ""
        try:
            line.expect("function", "function NAME")
            name = line.expect_function_name()
            line.expect_end()
        except UserError as error:
            self._report(error)
            name = ""
            if line.starts_with("declare") or line.starts_with("code"):
                return name
        self._next += 1
        return name

    def _opening(self, word: str) -> bool:
        """Advance past ``word {``, searching further down after an error; False if missing."""
        line = self._line()
        if line is None:
            if not self._errors:
                self._report_end(f"{word} {{")
            return False
        try:
            line.expect(word, f"{word} {{")
            line.expect("{")
            line.expect_end()
        except UserError as error:
            self._report(error)
            if not line.starts_with(word):
                return self._skip_to(word)
        self._next += 1
        return True

    def _skip_to(self, word: str) -> bool:
        while line := self._line():
            if line.starts_with("code") and word != "code":
                return False
            self._next += 1
            if line.starts_with(word):
                return True
        return False

    def _section(self, parse_line: Callable[[LineCursor], None], until: str | None = None) -> None:
        """Parse each line up to the closing brace; ``until`` starts the next section."""
        while line := self._line():
            if until is not None and line.starts_with(until):
                self._report(line.make_error("} before this line"))
                return
            self._next += 1
            try:
                if line.peek().text == "}":
                    line.expect("}")
                    line.expect_end()
                    return
                parse_line(line)
            except UserError as error:
                self._report(error)
        self._report_end("}")

    def _declaration(self, line: LineCursor, weights: list[WeightVar]) -> None:
        if line.peek().text != ";":
            weights.append(parse_weight(line))
            return
        size, place = line.expect_declared_size()
        total = sum(weight.type.nbytes for weight in weights)
        if size != total and not self._errors:
            hint = "Declare the sum of the sizes of all WeightVars, without padding."
            raise fail(
                "LIR011",
                "the declared size does not match the weights",
                place=place,
                found=f"{size} bytes",
                expected=f"{total} bytes",
                hint=hint,
            )
