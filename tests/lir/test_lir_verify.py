"""The verifier, a rule at a time: a program that is right, then one thing wrong in it."""

import attrs
import pytest

from nmpsim.diagnostics import Diagnostic, UserError
from nmpsim.lir.nodes import (
    Instruction,
    Module,
    Quantization,
    SourcePosition,
    TensorType,
    WeightVar,
)
from nmpsim.lir.parser import parse
from nmpsim.lir.verify import verify


def q(elem: str, shape: str, scale: float = 0.5, offset: int = 0) -> str:
    return f"{elem}[S:{scale:.9f} O:{offset}][-1.000,1.000]<{shape}>"


def program(consts: dict[str, str], ins: dict[str, str], *code: str, **outs: str) -> str:
    """Return a program of constants, inputs, mutable outputs and lines of code."""
    weights = [f"  %{n} = WeightVar {t} const" for n, t in consts.items()]
    weights += [f"  %{n} = WeightVar {t} mutable" for n, t in (ins | outs).items()]
    lines = [f"  {i} {line}" for i, line in enumerate(code)]
    return "\n".join(["function f", "declare {", *weights, "}", "code {", *lines, "}", ""])


def findings(text: str) -> tuple[Diagnostic, ...]:
    module = parse(text)
    try:
        verify(module)
    except UserError as error:
        return error.diagnostics
    return ()


def check_one(text: str, code: str, at: str, message: str) -> None:
    """Assert that there is one finding, at the first character of ``at`` in the text."""
    found = findings(text)
    assert [(d.code, d.message) for d in found] == [(code, message)]
    place = found[0].place
    assert place is not None and place.line is not None and place.column is not None
    assert text.split("\n")[place.line - 1][place.column - 1 :].startswith(at)


# Names, numbers, operands, attributes, lives

LIFE = program(
    {"w": q("i8", "4")},
    {"x": q("i8", "4")},
    "%a_res = allocactivation  { Ty: " + q("i8", "4") + "}",
    "%a = elementadd @out %a_res, @in %x, @in %w",
    "%v = tensorview @in %a_res { Ty: " + q("i8", "2 x 2") + ", Offsets: [0]}",
    "%u = tensorview @in %v { Ty: " + q("i8", "4") + ", Offsets: [0, 0]}",
    "%b = copy @out %y, @in %u",
    "%dealloc_a = deallocactivation @out %a_res",
    y=q("i8", "4"),
)


def test_a_correct_program_is_accepted():
    assert findings(LIFE) == ()


@pytest.mark.parametrize(
    ("old", "new", "code", "at", "message"),
    [
        ("@in %x", "@in %z", "LIR003", "@in %z", "unknown name %z"),
        ("@in %x", "@in %b", "LIR003", "@in %b", "unknown name %b"),
        ("@out %y, @in %u", "@out %y, @in %a", "LIR003", "@in %a", "%a is not a tensor"),
        ("%b = copy", "%w = copy", "LIR004", "4 %w", "%w is defined twice"),
        ("%y = W", "%x = W", "LIR004", "%x = W", "%x is defined twice"),
        ("4 %b", "7 %b", "LIR005", "7 %b", "instruction numbers are not contiguous"),
        ("elementadd @out %a_res, @in %x, @in %w", "elementadd @out %a_res, @in %x",
         "LIR007", "1 %a", "the operands of elementadd are wrong"),
        ("elementadd @out %a_res, @in %x", "elementadd @out %a_res, @out %x",
         "LIR007", "@out %x", "the operands of elementadd are wrong"),
        ("copy @out %y, @in %u", "copy @out %y, @in %u, @in %u",
         "LIR007", "@in %u\n", "the operands of copy are wrong"),
        ("copy @out %y", "copy @out %w", "LIR007", "@out %w", "%w cannot be written"),
        (", Offsets: [0]", ", Offsts: [0]", "LIR008", "Offsts: [0]",
         "tensorview has no attribute Offsts"),
        ("Offsets: [0]", "Offsets: 0", "LIR008", "Offsets: 0", "attribute Offsets is invalid"),
        ("Offsets: [0]", "Offsets: [-1]", "LIR008", "Offsets: [-1]",
         "attribute Offsets is invalid"),
        ("elementadd @out %a_res, @in %x", "elementadd @out %a_res, @in %a_res",
         "LIR010", "@in %a_res, @in %w", "%a_res is read before it is written"),
        ("elementadd @out %a_res, @in %x", "elementadd @out %a_res, @in %u",
         "LIR010", "@in %u", "%u is used before its definition"),
        ("= copy @out %y, @in %u", "= deallocactivation @out %a_res",
         "LIR010", "@out %a_res\n", "%a_res is deallocated twice"),
        ("deallocactivation @out %a_res", "deallocactivation @out %v",
         "LIR010", "@out %v", "%v cannot be deallocated"),
        ("deallocactivation @out %a_res", "deallocactivation @out %y",
         "LIR010", "@out %y", "%y cannot be deallocated"),
    ],
)  # fmt: skip
def test_wrong_names_and_lifetimes_are_errors(old, new, code, at, message):
    assert old in LIFE
    text = LIFE.replace(old, new)
    found = [d for d in findings(text) if d.code == code]
    assert found and found[0].message == message
    place = found[0].place
    assert place is not None and place.line is not None and place.column is not None
    rest = text.split("\n")[place.line - 1][place.column - 1 :] + "\n"
    assert rest.startswith(at)


def test_a_use_of_a_dead_buffer_through_a_view_is_an_error():
    lines = LIFE.split("\n")
    copy, free = (next(i for i, t in enumerate(lines) if w in t) for w in ("= copy", "%dealloc"))
    lines[copy], lines[free] = lines[free].replace("5", "4"), lines[copy].replace("4", "5", 1)
    text = "\n".join(lines)
    check_one(text, "LIR010", "@in %u", "%u is used after its deallocation")
    assert findings(text)[0].found == "%a_res was deallocated in line 12"


def test_a_view_of_a_constant_cannot_be_written():
    text = program(
        {"w": q("i8", "4")},
        {"x": q("i8", "4")},
        "%v = tensorview @in %w { Ty: " + q("i8", "4") + ", Offsets: [0]}",
        "%a = copy @out %v, @in %x",
    )
    check_one(text, "LIR007", "@out %v", "%v cannot be written")


def test_hints_name_the_intended_word():
    (error,) = findings(LIFE.replace("@in %u", "@in %a_rs").replace("copy", "copy"))
    assert error.hint == "Did you mean '%a_res'?"
    missing = findings(LIFE.replace(", Offsets: [0]", ", Offsts: [0]"))
    assert missing[0].hint == "Did you mean 'Offsets'?"
    assert missing[1].message == "tensorview lacks the attribute Offsets"


def test_all_findings_are_reported_together():
    text = LIFE.replace("@in %x", "@in %q").replace("4 %b", "9 %b").replace("@out %y", "@out %w")
    assert [d.code for d in findings(text)] == ["LIR003", "LIR005", "LIR007"]


def test_an_unknown_opcode_in_a_module_is_an_error():
    instruction = Instruction(0, "a", "convolve", (), {}, SourcePosition(1, 1))
    with pytest.raises(UserError) as caught:
        verify(Module("f", (), (instruction,)))
    assert caught.value.diagnostics[0].code == "LIR006"


def test_a_predicate_must_exist():
    text = LIFE.replace("copy @out", "copy [ pred: no ] @out")
    check_one(text, "LIR003", "4 %b", "unknown name %no")
    assert findings(LIFE.replace("copy @out", "copy [ pred: x ] @out")) == ()


# Types by themselves


@pytest.mark.parametrize(
    ("type", "code", "message"),
    [
        (q("i8", "0"), "LIR009", "%x: a dimension is not positive"),
        (q("i8", "4 x -1"), "LIR009", "%x: a dimension is not positive"),
        (q("i8", "4", 0.0), "LIR009", "%x: the scale is invalid"),
        (q("i8", "4", -0.5), "LIR009", "%x: the scale is invalid"),
        (q("i8", "4", float("inf")), "LIR009", "%x: the scale is invalid"),
        (
            q("i8", "4", 0.5, 128),
            "LIR009",
            "%x: the offset is outside the range of the element type",
        ),
        (q("float", "4"), "LIR009", "%x: the type cannot be quantized"),
        ("i16<4>", "LIR009", "%x: the type has no scale and offset"),
        ("float<4:0>", "LIR009", "%x: the alignments are invalid"),
    ],
)
def test_impossible_types_are_errors(type, code, message):
    check_one(program({}, {"x": type}), code, "%x", message)


@pytest.mark.parametrize(
    "type",
    [
        TensorType("i4", (1,)),
        TensorType("float", (2**20, 2**20)),
        TensorType("float", (1,), None, (1, 2)),
    ],
)
def test_impossible_types_of_a_module_are_errors(type):
    with pytest.raises(UserError):
        verify(Module("f", (WeightVar("x", type, False, SourcePosition(1, 1)),), ()))


def test_nan_is_refused_as_scale():
    type = TensorType("i8", (1,), Quantization(float("nan"), 0, 0.0, 0.0))
    with pytest.raises(UserError):
        verify(Module("f", (WeightVar("x", type, False, SourcePosition(1, 1)),), ()))


# Types that have to go together, opcode by opcode

CONV = program(
    {"w": q("i8", "6 x 3 x 3 x 2"), "b": q("i32", "6")},
    {"x": q("i8", "1 x 8 x 9 x 4")},
    "%a = convolution @out %y, @in %x, @in %w, @in %b { Kernels: [3, 3], Strides: [2, 1], "
    "Pads: [1, 0, 1, 2], Group: 2, Dilation: [1, 2], Layout: NHWC, FusedActivation: CLIP, "
    "FusedActivationArgs: [0.000000e+00, 6.000000e+00]}",
    y=q("i8", "1 x 4 x 7 x 6"),
)
CHANNELWISE = program(
    {
        "w": q("i8", "6 x 1 x 1 x 4", 0.0),
        "b": q("i32", "6", 0.0),
        "s": "float<6>",
        "o": "index32<6>",
    },
    {"x": q("i8", "1 x 8 x 8 x 4")},
    "%a = channelwisequantizedconvolution @out %y, @in %x, @in %w, @in %b, @in %s, @in %o, "
    "@in %s, @in %o { Kernels: [1, 1], Strides: [1, 1], Pads: [0, 0, 0, 0], Group: 1, "
    "Dilation: [1, 1], FusedActivation: NONE, FusedActivationArgs: []}",
    y=q("i8", "1 x 8 x 8 x 6"),
)
FC = program(
    {"w": q("i8", "5 x 3"), "b": q("i32", "3")},
    {"x": q("i8", "2 x 5")},
    "%a = fullyconnected @out %y, @in %x, @in %w, @in %b",
    y=q("i8", "2 x 3"),
)
ROWWISE = program(
    {"w": q("i8", "3 x 5", 0.0), "b": q("i32", "3"), "s": "float<3>", "o": "index32<3>"},
    {"x": q("i8", "2 x 5")},
    "%a = rowwisequantizedfullyconnected @out %y, @in %x, @in %w, @in %b, @in %s, @in %o",
    y=q("i8", "2 x 3"),
)
MATMUL = program(
    {},
    {"x": "float<2 x 5>", "w": "float<5 x 3>"},
    "%a = matmul @out %y, @in %x, @in %w",
    y="float<2 x 3>",
)
BATCHED = program(
    {},
    {"x": q("i8", "2 x 5"), "s": q("i32", "5")},
    "%a = batchedadd @out %y, @in %x, @in %s",
    y=q("i8", "2 x 5"),
)
POOL = program(
    {},
    {"x": q("i8", "1 x 6 x 6 x 3")},
    "%a = maxpool @out %y, @in %x { Kernels: [3, 2], Strides: [2, 2], Pads: [1, 0, 0, 0], "
    "Layout: 0}",
    y=q("i8", "1 x 3 x 3 x 3"),
)
AVGPOOL = POOL.replace("maxpool", "avgpool").replace("Layout: 0", "Layout: 0, CountIncludePads: 0")
ARGMAX = program(
    {},
    {"x": q("i8", "1 x 6 x 6 x 3")},
    "%a = maxpoolwithargmax @out %y, @in %x, @out %i { Kernels: [2, 2], Strides: [2, 2], "
    "Pads: [0, 0, 0, 0], Layout: 0}",
    y=q("i8", "1 x 3 x 3 x 3"),
    i="index64<1 x 3 x 3 x 3>",
)


def unary(opcode: str, x: str, y: str, attributes: str = "") -> str:
    return program({}, {"x": x}, f"%a = {opcode} @out %y, @in %x{attributes}", y=y)


def binary(opcode: str, x: str = "float<2>", z: str = "float<2>", y: str = "float<2>") -> str:
    return program({}, {"x": x, "z": z}, f"%a = {opcode} @out %y, @in %x, @in %z", y=y)


RELU = unary("relu", q("i8", "2 x 3"), q("i8", "2 x 3", 0.25))
CLIP = unary("clip", "float<2>", "float<2>", " { Min: 0.000000e+00, Max: 6.000000e+00}")
LEAKY = unary("leakyrelu", q("i8", "2"), q("i8", "2"), " { Alpha: 1.000000e-01}")
SPLATMAX = unary("cpumaxsplat", q("i8", "2"), q("i8", "2"), " { SplatValue: 0.000000e+00}")
QUANTIZE = unary("quantize", "float<2>", q("i8", "2"))
DEQUANTIZE = unary("dequantize", q("i16", "2"), "float<2>")
RESCALE = unary("rescalequantized", q("i8", "2"), q("i8", "2", 0.25))
WIDEN = unary("rescalequantized", q("i8", "2"), q("i16", "2", 0.25))
COPY = unary("copy", q("i8", "2"), q("i8", "2"))
TRANSPOSE = unary("transpose", q("i8", "1 x 2 x 3"), q("i8", "3 x 1 x 2"), " { Shuffle: [2, 0, 1]}")
EXTRACT = unary("extracttensor", "float<4 x 4>", "float<2 x 3>", " { Offsets: [2, 1]}")
SOFTMAX = unary("softmax", q("i8", "1 x 4"), q("i8", "1 x 4", 0.25))
REDUCE = unary("batchedreduceadd", "float<2 x 3 x 4>", "float<2 x 4>", " { Axis: 1}")
RESIZE = unary(
    "resizenearest",
    "float<1 x 2 x 2 x 3>",
    "float<1 x 4 x 3 x 3>",
    " { Scale: [1.000000e+00, 2.000000e+00, 1.500000e+00, 1.000000e+00]}",
)
INSERT = program(
    {},
    {"x": q("i8", "2 x 2"), "y": q("i8", "2 x 5")},
    "%a = inserttensor @inout %y, @in %x { Offsets: [0, 1], Count: 2, Axis: 1}",
)
LOOKUP = program(
    {"m": q("i8", "256")},
    {"x": q("i8", "4")},
    "%a = intlookuptable @out %y, @in %x, @in %m",
    y=q("i8", "4"),
)
LRN = program(
    {},
    {"x": "float<1 x 2 x 2 x 3>"},
    "%a = localresponsenormalization @out %y, @in %x, @out %s { HalfWindowSize: 2, "
    "Alpha: 1.000000e-04, Beta: 7.500000e-01, K: 2.000000e+00}",
    y="float<1 x 2 x 2 x 3>",
    s="float<1 x 2 x 2 x 3>",
)
SELECT = program(
    {},
    {"c": "bool<2>", "x": "float<2>", "z": "float<2>"},
    "%a = elementselect @out %y, @in %c, @in %x, @in %z",
    y="float<2>",
)
COMPARE = binary("elementcmplte", y="bool<2>")
VIEW = program(
    {},
    {"x": q("i8", "3 x 4")},
    "%v = tensorview @in %x { Ty: " + q("i8", "2 x 2") + ", Offsets: [2, 0]}",
)
SMALL = program(
    {},
    {"x": "float<2>"},
    "%a = touch @out %y",
    "%b = splat @out %y { Value: 1.000000e+00}",
    "%c = sigmoid @out %y, @in %x",
    "%d = tanh @out %y, @in %x",
    "%e = debugprint @in %y { Format: console, FileName: }",
    y="float<2>",
)
ELEMENTWISE = [binary(f"element{name}") for name in ("add", "sub", "mul", "div", "max", "min")]


@pytest.mark.parametrize(
    "text",
    [
        CONV, CHANNELWISE, FC, ROWWISE, MATMUL, BATCHED, POOL, AVGPOOL, ARGMAX, RELU, CLIP, LEAKY,
        SPLATMAX, QUANTIZE, DEQUANTIZE, RESCALE, WIDEN, COPY, TRANSPOSE, EXTRACT, SOFTMAX,
        REDUCE, RESIZE, INSERT, LOOKUP, LRN, SELECT, COMPARE, VIEW, SMALL, *ELEMENTWISE,
    ],
)  # fmt: skip
def test_correct_types_are_accepted(text):
    assert findings(text) == ()


@pytest.mark.parametrize(
    ("text", "old", "new", "at", "message"),
    [
        (CONV, "1 x 4 x 7 x 6", "1 x 4 x 9 x 6", "@out %y", "Dest has the wrong shape"),
        (CONV, "1 x 4 x 7 x 6", "1 x 4 x 7", "@out %y", "Dest has the wrong number of dimensions"),
        (CONV, "6 x 3 x 3 x 2", "6 x 3 x 3 x 4", "@in %w", "Filter has the wrong shape"),
        (CONV, "Kernels: [3, 3]", "Kernels: [3, 2]", "@in %w", "Filter has the wrong shape"),
        (CONV, "Group: 2", "Group: 3", "@in %x", "Group does not divide the channels of Src"),
        (CONV, "1 x 8 x 9 x 4", "1 x 8 x 2 x 4", "@in %x",
         "the window is larger than the padded Src"),
        (CONV, "]<6>", "]<7>", "@in %b", "Bias has the wrong shape"),
        (CONV, "i32", "ui8", "@in %b", "Bias has the wrong element kind"),
        (CONV, q("i8", "6 x 3 x 3 x 2"), q("i16", "6 x 3 x 3 x 2"), "@in %w",
         "Filter and Src differ in their element kind"),
        (CHANNELWISE.replace("@in %o,", "@in %s,", 1), "i8", "i8", "@in %s, @in %s, @in %o",
         "FilterOffsets has the wrong element kind"),
        (FC, "<5 x 3>", "<4 x 3>", "@in %w", "Weights has the wrong shape"),
        (FC, "<2 x 3>", "<3 x 3>", "@out %y", "Dest has the wrong shape"),
        (FC, "<2 x 5>", "<1 x 2 x 5>", "@in %x", "Src has the wrong number of dimensions"),
        (FC, "<3>", "<1 x 3>", "@in %b", "Bias has the wrong shape"),
        (ROWWISE, "<3 x 5>", "<5 x 3>", "@in %w", "Weights has the wrong shape"),
        (ROWWISE, "float<3>", "float<2>", "@in %s", "Scales has the wrong shape"),
        (MATMUL, "<5 x 3>", "<3 x 5>", "@in %w", "RHS has the wrong shape"),
        (BATCHED, "]<5>", "]<2>", "@in %s", "Slice has the wrong shape"),
        (POOL, "1 x 3 x 3 x 3", "1 x 3 x 3 x 4", "@out %y", "Dest has the wrong shape"),
        (POOL, q("i8", "1 x 3 x 3 x 3"), q("i8", "1 x 3 x 3 x 3", 0.25), "@out %y",
         "Dest and Src differ in scale or offset"),
        (ARGMAX, "index64<1 x 3 x 3 x 3>", "index64<1 x 3 x 3>", "@out %i",
         "Argmax has the wrong shape"),
        (ARGMAX, "index64", "float", "@out %i", "Argmax has the wrong element kind"),
        (RELU, "<2 x 3>", "<3 x 2>", "@out %y", "Dest has the wrong shape"),
        (SPLATMAX, "O:0", "O:1", "@out %y", "Dest and Src differ in scale or offset"),
        (QUANTIZE, "float<2>", q("i8", "2"), "@in %x", "Src has the wrong element kind"),
        (DEQUANTIZE, "float<2>", q("i8", "2"), "@out %y", "Dest has the wrong element kind"),
        (RESCALE, q("i8", "2"), "float<2>", "@in %x", "Src has the wrong element kind"),
        (RESCALE, q("i8", "2", 0.25), "float<2>", "@out %y", "Dest has the wrong element kind"),
        (COPY, "S:0.5", "S:0.25", "@out %y", "Dest and Src differ in scale or offset"),
        (TRANSPOSE, "[2, 0, 1]", "[2, 1, 0]", "@out %y", "Dest has the wrong shape"),
        (TRANSPOSE, "[2, 0, 1]", "[2, 0, 0]", "0 %a", "Shuffle is not a permutation"),
        (TRANSPOSE, "[2, 0, 1]", "[]", "0 %a", "Shuffle is not a permutation"),
        (EXTRACT, "[2, 1]", "[2, 2]", "@out %y", "Dest exceeds Src in dimension 1"),
        (EXTRACT, "[2, 1]", "[2]", "@out %y",
         "Offsets, Dest and Src have different numbers of dimensions"),
        (unary("softmax", "float<1 x 4>", "float<4>"), "1 x 4", "4", "@in %x",
         "Src has too few dimensions"),
        (REDUCE, "Axis: 1", "Axis: 3", "@in %x", "Axis is not a dimension of Batch"),
        (REDUCE, "Axis: 1", "Axis: 0", "@out %y", "Dest has the wrong shape"),
        (RESIZE, "<1 x 4 x 3 x 3>", "<1 x 4 x 5 x 3>", "@out %y", "Dest has the wrong shape"),
        (INSERT, "Count: 2", "Count: 3", "@in %x", "Src exceeds Dest in dimension 1"),
        (INSERT, "Axis: 1", "Axis: 2", "@in %x", "Axis is not a dimension of Src"),
        (LOOKUP, "<256>", "<255>", "@in %m", "Mapping has the wrong shape"),
        (LRN, "float<1 x 2 x 2 x 3>", "float<1 x 2 x 6>", "@in %x",
         "Src has the wrong number of dimensions"),
        (SELECT, "bool", "float", "@in %c", "Cond has the wrong element kind"),
        (COMPARE, "bool", "float", "@out %y", "Dest has the wrong element kind"),
        (VIEW, "[2, 0]", "[2, 1]", "@in %x", "the view exceeds Src"),
        (VIEW, "[2, 0]", "[3, 0]", "@in %x", "the view begins outside Src"),
        (VIEW, "[2, 0]", "[2]", "@in %x", "Offsets and Src have different numbers of dimensions"),
        (binary("elementadd"), "float<2> mutable", "float<3> mutable", "@in %x",
         "LHS has the wrong shape"),
        (binary("elementmul", q("i8", "2"), q("i8", "2"), q("i8", "2")), "i8", "i16", "@in %x",
         "LHS and Dest differ in their element kind"),
    ],
)  # fmt: skip
def test_wrong_types_are_errors(text, old, new, at, message):
    assert old in text
    check_one(text.replace(old, new, 1), "LIR009", at, message)


@pytest.mark.parametrize(
    ("text", "old", "new", "at", "message"),
    [
        (CONV, "Strides: [2, 1]", "Strides: [0, 1]", "Strides: ", "attribute Strides is invalid"),
        (CONV, "Strides: [2, 1]", "Strides: [2]", "Strides: ", "attribute Strides is invalid"),
        (CONV, "Dilation: [1, 2]", "Dilation: [1, 0]", "Dilation: ",
         "attribute Dilation is invalid"),
        (CONV, "Pads: [1, 0, 1, 2]", "Pads: [1, 0, 1, -2]", "Pads: ",
         "attribute Pads is invalid"),
        (CONV, "Group: 2", "Group: 0", "Group: ", "attribute Group is invalid"),
        (CONV, "NHWC", "NCHW", "Layout: ", "attribute Layout is invalid"),
        (CONV, "CLIP", "GELU", "FusedActivation: ", "attribute FusedActivation is invalid"),
        (CONV, "CLIP", "NONE", "FusedActivationArgs: ",
         "NONE has the wrong number of FusedActivationArgs"),
        (CONV, "Group: 2, ", "", "0 %a", "convolution lacks the attribute Group"),
        (AVGPOOL, "CountIncludePads: 0", "CountIncludePads: 2",
         "CountIncludePads: ", "attribute CountIncludePads is invalid"),
        (AVGPOOL.replace("3 x 3 x 3", "4 x 3 x 3"), "Pads: [1, 0", "Pads: [3, 0",
         "Pads: ", "a window can lie entirely in the padding"),
        (CLIP, "Min: 0.0", "Min: 7.0", "Min: ", "Min is greater than Max"),
        (CONV, "Args: [0.0", "Args: [7.0", "FusedActivationArgs: ", "Min is greater than Max"),
        (LEAKY, "1.000000e-01", "tenth", "Alpha: ", "attribute Alpha is invalid"),
    ],
)  # fmt: skip
def test_wrong_attributes_are_errors(text, old, new, at, message):
    assert old in text
    check_one(text.replace(old, new, 1), "LIR008", at, message)


def test_a_zero_scale_is_valid_only_for_channelwise_weights():
    also_used = CHANNELWISE.replace("}\n}", "}\n  1 %u = tensorview @in %b { Ty: "
                                    + q("i32", "6") + ", Offsets: [0]}\n}")  # fmt: skip
    assert findings(CHANNELWISE) == ()
    assert findings(also_used)[0].message == "%b: the scale is invalid"


def test_exact_scales_count_as_equal_when_they_print_the_same():
    module = parse(COPY)
    weight = module.weights[0]
    assert weight.type.quant is not None
    quant = attrs.evolve(weight.type.quant, scale=0.5 + 1e-12)
    weight = attrs.evolve(weight, type=attrs.evolve(weight.type, quant=quant))
    verify(attrs.evolve(module, weights=(weight, *module.weights[1:])))
