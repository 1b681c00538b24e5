"""Whatever the text: a module or a UserError. Whatever the module: its text gives it back."""

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shared_files import shared_folder
from tiers import examples

from nmpsim.diagnostics import UserError
from nmpsim.lir.nodes import (
    MODULE_ELEMS,
    QUANTIZED_ELEMS,
    Instruction,
    Module,
    Operand,
    Quantization,
    SourcePosition,
    TensorType,
    WeightVar,
)
from nmpsim.lir.opcodes import OPCODES
from nmpsim.lir.parser import parse
from nmpsim.lir.printer import format_module
from nmpsim.lir.verify import verify

REAL = "lir/lenet/i8_asym_b32/cpu.lir.txt"
PIECES = [
    "", "0", "-1", "7", "99999999999999", "9" * 40, "1e999", "inf", "nan", "x", " x ", ", ", ": ",
    "{", "}", "[", "]", "<", ">", "[]", "<>", "<0>", "%", "@in ", "@out ", "@inout ", "//", ";",
    "\n", "\r", "\x00", "\ufeff", "i8", "i16", "float", "bool", "Ty: ", "Offsets: [9]",
    "[S:0.000000000 O:0][0.000,0.000]", "tensorview", "relu", "maxpool", "copy", "touch",
    "transpose", "inserttensor", "%data", "%nothing", "const", "mutable", "[ pred: %data ] ",
]  # fmt: skip
NOWHERE = SourcePosition(0, 0)


@cache
def real_text() -> str:
    path = shared_folder() / REAL
    if not path.is_file():
        pytest.skip(f"no reference file {path}")
    return path.read_text()


def read(text: str) -> None:
    try:
        verify(parse(text))
    except UserError as error:
        assert all(d.place is not None for d in error.diagnostics)


@examples(250)
@given(st.text())
def test_any_text_parses_or_is_refused(text):
    read(text)


@examples(400)
@given(st.data())
def test_mutated_programs_parse_or_are_refused(data):
    text = real_text()
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        length = data.draw(st.sampled_from((0, 1, 2, 5, 30, 400)))
        text = text[:start] + data.draw(st.sampled_from(PIECES)) + text[start + length :]
    read(text)


@examples(200)
@given(st.data())
def test_exchanged_tokens_parse_or_are_refused(data):
    """Mutations that keep the grammar, so that the verifier sees them."""
    lines = real_text().split("\n")
    for _ in range(data.draw(st.integers(1, 3))):
        i = data.draw(st.integers(2, len(lines) - 2))
        words = lines[i].split(" ")
        other = data.draw(st.sampled_from(lines)).split(" ")
        j = data.draw(st.integers(0, len(words) - 1))
        words[j] = data.draw(st.sampled_from([*other, *PIECES]))
        lines[i] = " ".join(words)
    read("\n".join(lines))


names = st.from_regex(r"[A-Za-z_0-9]{1,12}", fullmatch=True)
decimals = st.floats(0, 1000, allow_nan=False)
floats = st.floats(allow_nan=False, allow_infinity=True, width=32).map(lambda x: float(f"{x:e}"))
integers = st.integers(-(10**9), 10**9)


@st.composite
def quantizations(draw):
    scale = float(f"{draw(decimals):.9f}")
    low, high = (float(f"{draw(decimals):.3f}") for _ in range(2))
    return Quantization(scale, draw(st.integers(-128, 127)), -low, high)


@st.composite
def types(draw):
    elem = draw(st.sampled_from(sorted(MODULE_ELEMS)))
    shape = tuple(draw(st.lists(st.integers(1, 20), max_size=6)))
    alignments = tuple(draw(st.sampled_from((1, 1, 8))) for _ in shape)
    return TensorType(
        elem,
        shape,
        draw(quantizations()) if elem in QUANTIZED_ELEMS else None,
        alignments if any(a != 1 for a in alignments) else (),
    )


words = st.sampled_from(("NHWC", "NONE", "RELU", "console", ""))
lists = st.lists(integers).map(tuple) | st.lists(floats, min_size=1).map(tuple)
values = integers | floats | words | lists | types()
operands = st.builds(Operand, st.sampled_from(("@in", "@out", "@inout")), names, st.just(NOWHERE))


@st.composite
def modules(draw):
    weights = st.builds(WeightVar, names, types(), st.booleans(), st.just(NOWHERE))
    instructions = st.builds(
        Instruction,
        st.integers(0, 10**9),
        names,
        st.sampled_from(sorted(OPCODES)),
        st.lists(operands, max_size=4).map(tuple),
        st.dictionaries(st.sampled_from(("Ty", "Offsets", "Min", "Scale")), values, max_size=3),
        st.just(NOWHERE),
        st.none() | names.filter(lambda name: not name[0].isdigit()),
    )
    return Module(
        draw(names),
        tuple(draw(st.lists(weights, max_size=4))),
        tuple(draw(st.lists(instructions, max_size=5))),
    )


@examples(200)
@given(modules())
def test_printed_modules_parse_back(module):
    text = format_module(module)
    again = parse(text)
    assert again == module
    assert format_module(again) == text


@examples(100)
@given(modules())
def test_any_module_can_be_verified(module):
    try:
        verify(module)
    except UserError as error:
        assert error.diagnostics
