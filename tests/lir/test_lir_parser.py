"""Test the parser's results, and its errors for invalid programs."""

import pytest
from counted_work import count_calls

from nmpsim.diagnostics import MAX_ERRORS, Diagnostic, Place, UserError
from nmpsim.lir.nodes import (
    Instruction,
    Module,
    Operand,
    Quantization,
    SourcePosition,
    TensorType,
    WeightVar,
)
from nmpsim.lir.parser import parse, parse_file
from nmpsim.lir.printer import format_module

PROGRAM = """\
function main
declare {
  %w = WeightVar i8[S:0.500000000 O:-3][-62.500,65.000]<2 x 3> const // size: 6 // Users: @in 1
  %x = WeightVar float<> mutable // size: 4

  ; size = 10 bytes
}

code {
  0 %a_res = allocactivation  { Ty: i8[S:0.500000000 O:-3][-62.500,65.000]<2 x 3:4>} // size: 6
  1 %a = cpumaxsplat @out %a_res, @in %w { SplatValue: -1.500000e-01}
  2 %v = tensorview @in %a_res { Ty: float<6>, Offsets: [0, 1]} // Users: @in 3
  3 %dealloc_a = deallocactivation [ pred: %p ] @out %a_res // size: 6
}
"""
I8 = Quantization(0.5, -3, -62.5, 65.0)


def errors(text: str) -> list[Diagnostic]:
    with pytest.raises(UserError) as caught:
        parse(text, "net.lir.txt")
    return list(caught.value.diagnostics)


def places(text: str) -> list[tuple[str, int | None, int | None]]:
    found = []
    for diagnostic in errors(text):
        assert diagnostic.place is not None
        assert diagnostic.place.file == "net.lir.txt"
        found.append((diagnostic.code, diagnostic.place.line, diagnostic.place.column))
    return found


def replace(old: str, new: str) -> str:
    assert old in PROGRAM
    return PROGRAM.replace(old, new)


def split_mark(text: str) -> tuple[str, Place]:
    """Return the text without its ¶, and the place of that mark."""
    before, after = text.split("¶")
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    # What goes on after the mark may begin with the blank that was there before.
    return before + after, Place("net.lir.txt", line, column + len(after) - len(after.lstrip(" ")))


def test_a_program_is_parsed():
    module = parse(PROGRAM, "net.lir.txt")
    assert (module.name, module.file) == ("main", "net.lir.txt")
    assert module.weights == (
        WeightVar("w", TensorType("i8", (2, 3), I8), True, SourcePosition(0, 0)),
        WeightVar("x", TensorType("float", ()), False, SourcePosition(0, 0)),
    )
    assert module.instructions[1] == Instruction(
        1,
        "a",
        "cpumaxsplat",
        (Operand("@out", "a_res", SourcePosition(0, 0)), Operand("@in", "w", SourcePosition(0, 0))),
        {"SplatValue": -0.15},
        SourcePosition(0, 0),
    )
    assert module.instructions[0].attributes == {"Ty": TensorType("i8", (2, 3), I8, (1, 4))}
    assert module.instructions[2].attributes["Offsets"] == (0, 1)
    assert module.instructions[3].predicate == "p"


def test_spans_begin_at_the_first_character():
    module = parse(PROGRAM)
    assert module.weights[0].span == SourcePosition(3, 3)
    assert module.instructions[1].span == SourcePosition(11, 3)
    assert [o.span for o in module.instructions[1].operands] == [
        SourcePosition(11, 22),
        SourcePosition(11, 35),
    ]


@pytest.mark.parametrize("text", [PROGRAM.replace("\n", "\r\n"), "\ufeff" + PROGRAM])
def test_line_ends_and_byte_order_mark_do_not_matter(text):
    assert parse(text) == parse(PROGRAM)


def test_comments_and_blanks_do_not_matter():
    text = "// made by hand\n\n" + PROGRAM.replace("code {", "\t code  {  // go") + "\n//end"
    assert parse(text) == parse(PROGRAM)


def test_the_derived_size_is_optional():
    assert parse(replace("\n  ; size = 10 bytes\n", "")) == parse(PROGRAM)


def test_an_empty_program_is_parsed():
    module = parse("function f\ndeclare {\n}\ncode {\n}\n")
    assert (module.weights, module.instructions) == ((), ())


@pytest.mark.parametrize(
    ("old", "new", "code", "found", "expected"),
    [
        ("function main", "¶func main", "LIR001", "func", "function NAME"),
        ("function main", "function¶", "LIR001", "end of line", "the function's name"),
        ("declare {", "declare¶", "LIR001", "end of line", "{"),
        ("code {", "code ¶}", "LIR001", "}", "{"),
        ("%w = W", "¶w = W", "LIR001", "w", "a name such as %x"),
        ("WeightVar float", "¶Weight float", "LIR001", "Weight", "WeightVar"),
        ("<> mutable", "<> ¶static", "LIR001", "static", "const or mutable"),
        ("x = WeightVar float<>", "x = WeightVar ¶real<>", "LIR001", "real", None),
        ("<2 x 3> c", "<2 ¶* 3> c", "LIR001", "*", "x or >"),
        ("<2 x 3> c", "<2 x ¶> c", "LIR001", ">", "a dimension"),
        ("O:-3][-62.500,65.000]<2 x 3> c", "¶]<2 x 3> c", "LIR001", "]", "O:offset"),
        ("; size = 10", "; size = ¶11", "LIR011", "11 bytes", "10 bytes"),
        ("1 %a =", "¶%a =", "LIR001", "%a", "an instruction number, or }"),
        ("cpumaxsplat @", "¶cpumaxslat @", "LIR006", "cpumaxslat", "an opcode of the LIR"),
        ("@in %w", "¶@inn %w", "LIR001", "@inn", "@in, @out or @inout"),
        ("a_res, @in %w", "a_res ¶@in %w", "LIR001", "@in", "end of line"),
        ("a_res, @in %w", "a_res, ¶", "LIR001", "{", "@in, @out or @inout"),
        ("{ SplatValue: -1.500000e-01}", "{ SplatValue ¶-1}", "LIR001", "-1", ":"),
        (
            "{ SplatValue: -1.500000e-01}",
            "{ A: 1, ¶A: 2}",
            "LIR008",
            "A",
            "each attribute at most once",
        ),
        ("{ SplatValue: -1.500000e-01}", "{ A: 1¶", "LIR001", "end of line", ", or }"),
        ("[0, 1]", "[0, ¶x]", "LIR001", "x", "a number or ]"),
        ("[0, 1]", "[0 ¶1]", "LIR001", "1", ", or ]"),
        ("[ pred: %p ]", "[ pred: ¶]", "LIR001", "]", "the predicate's name"),
        ("}\n\ncode {", "¶code {", "LIR001", "code", "} before this line"),
    ],
)
def test_an_error_has_its_code_and_place(old, new, code, found, expected):
    text, place = split_mark(replace(old, new))
    (error,) = errors(text)
    assert (error.code, error.place, error.found) == (code, place, found)
    if expected is not None:
        assert error.expected == expected


def test_text_after_the_end_is_an_error():
    assert places(PROGRAM + "  more\n") == [("LIR001", 15, 3)]


@pytest.mark.parametrize("text", ["", "\n\n", "// nothing\n"])
def test_an_empty_text_is_an_error(text):
    (error,) = errors(text)
    assert error.code == "LIR002"


def test_a_truncated_text_is_an_error():
    (error,) = errors(PROGRAM[: PROGRAM.index("  3 %dealloc")])
    assert (error.code, error.place) == ("LIR002", Place("net.lir.txt", 13, 1))
    assert (error.found, error.expected) == ("the end of the text", "}")
    assert error.hint == "Write the file again: it may be truncated."


def test_errors_have_hints():
    (error,) = errors(replace("cpumaxsplat @", "cpumaxslat @"))
    assert error.hint == "Did you mean 'cpumaxsplat'?"
    (error,) = errors(replace("x = WeightVar float", "x = WeightVar floot"))
    assert error.hint == "Did you mean 'float'?"


def test_several_errors_are_reported_together():
    text = (
        replace("cpumaxsplat @", "relo @").replace("const", "cnst").replace("Ty: float", "T float")
    )
    assert places(text) == [("LIR001", 3, 64), ("LIR006", 11, 10), ("LIR001", 12, 36)]


def test_the_number_of_errors_is_limited():
    code = "".join(f"  {i} %a{i} = nothing\n" for i in range(1000))
    text = "function f\ndeclare {\n}\ncode {\n" + code + "}\n"
    assert len(errors(text)) == MAX_ERRORS


def test_a_message_has_all_parts():
    (error,) = errors(replace("cpumaxsplat @", "cpumaxslat @"))
    assert str(error) == (
        "net.lir.txt:11:10: error[LIR006]: unknown opcode cpumaxslat\n"
        "  found: cpumaxslat\n"
        "  expected: an opcode of the LIR\n"
        "  hint: Did you mean 'cpumaxsplat'?"
    )


@pytest.mark.parametrize(
    "dims",
    ["99999999999999", "65536 x 65536", "1 x 1 x 1 x 1 x 1 x 1 x 1", "-99999999999999"],
)
def test_absurd_sizes_are_refused(dims):
    assert places(replace("<2 x 3> const", f"<{dims}> const")) == [("LIR011", 3, 18)]


@pytest.mark.parametrize("dim", ["9" * 19, "9" * 100_000, "1e9", "0x10", "2.5", "٣"])
def test_dimensions_must_be_integers(dim):
    text, place = split_mark(replace("<2 x 3> const", f"<2 x ¶{dim}> const"))
    (error,) = errors(text)
    assert (error.code, error.place) == ("LIR001", place)


@pytest.mark.parametrize(
    "text",
    [
        "\x00\x01\x02" * 1000,
        "\x7fELF" + "\ufffd" * 1_000_000,
        "[" * 100_000,
        "function main\ndeclare {\n" + "[" * 100_000,
        "function main\ndeclare {\n}\ncode {\n  0 %x = allocactivation  { Ty: " + "<" * 100_000,
        "{" * 100_000 + "}" * 100_000,
        "%" * 100_000,
        "function " + "1" * 1_000_000 + "x y",
        "function main\ndeclare {\n  %x = WeightVar " + "i8" * 100_000,
        "function main\ndeclare {\n}\ncode {\n 0 %x = " + "y" * 1_000_000,
    ],
)
def test_garbage_fails_fast(text):
    assert errors(text)
    assert count_calls(errors, text) < 10 * len(text)


def test_messages_quote_a_limited_length():
    (error,) = errors(replace("cpumaxsplat @", "y" * 10_000 + " @"))
    assert len(str(error)) < 400


def test_large_programs_take_linear_time():
    def calls(lines: int) -> int:
        code = "".join(f"  {i} %a{i} = copy @out %x, @in %y\n" for i in range(lines))
        return count_calls(parse, "function f\ndeclare {\n}\ncode {\n" + code + "}\n")

    assert calls(4_000) < 2.1 * calls(2_000)


def test_unreadable_files_are_errors(tmp_path):
    with pytest.raises(UserError) as caught:
        parse_file(tmp_path / "none.lir.txt")
    assert caught.value.diagnostics[0].code == "FILE001"
    path = tmp_path / "binary.lir.txt"
    path.write_bytes(b"function \xff\xfe")
    with pytest.raises(UserError) as caught:
        parse_file(path)
    assert caught.value.diagnostics[0].place == Place(str(path), offset=9)


ANY_NAMES = (
    *("model/conv2d/Relu;b:0", "größe", "two words", 'quo"te\\', "tab\tline\n", "// c", "{[", "%"),
    *("const/x", "emoji 😀", "\u2028", "\x00"),
)


@pytest.mark.parametrize("name", ANY_NAMES)
def test_any_name_is_read_back(name: str) -> None:
    kind = TensorType("float", (2,))
    weights = tuple(
        WeightVar(n, kind, False, SourcePosition(0, 0)) for n in (name, "plain.name-1$")
    )
    text = format_module(Module("main", weights, ()))
    assert "%plain.name-1$ =" in text
    assert parse(text).weights == weights


@pytest.mark.parametrize("name", ['%""', '%"open', '%"\\ud800"', '%"\\q"', '%"a\tb"'])
def test_a_quoted_name_has_json_syntax(name: str) -> None:
    with pytest.raises(UserError) as error:
        parse(f"function main\ndeclare {{\n  {name} = WeightVar float<1> const\n}}\ncode {{\n}}\n")
    assert error.value.diagnostics[0].code == "LIR001"
