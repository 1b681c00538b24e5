"""Test refused formulas files, and formulas in bundles, reports and the debugger."""

from __future__ import annotations

from pathlib import Path

import attrs
import numpy as np
import pytest
from lir_draft import Draft
from small_programs import SMALL, image, out_kind, program

from nmpsim.bundle import parse_bundle
from nmpsim.bundle.formulas import (
    MAX_BYTES,
    find_custom_formulas,
    parse_custom_formulas,
    select_numerics,
)
from nmpsim.compiler.driver import compile_module
from nmpsim.core.device import Device
from nmpsim.debugger import Debugger
from nmpsim.debugger.explanation import explain_element
from nmpsim.diagnostics import UserError
from nmpsim.isa.profiles import NUMERICS
from nmpsim.kernels.formulas import ELEMENTS, FORMULAS
from nmpsim.lir.nodes import Quantization, TensorType

HEAD = 'name = "own"\nbase = "glow-int"\n'
DOWN = HEAD + "[glow_int]\nrescale = 'saturate((x >> out_pre) * out_mul, 32) >> out_post'\n"


def formula(text: str, key: str = "rescale", place: str = "glow_int") -> str:
    return f"{HEAD}[{place}]\n{key} = '''{text}'''\n"


def quant(scale: float) -> Quantization:
    return Quantization(scale, 3, 0.0, 0.0)


def steps(count: int) -> str:
    return "\n".join([*(f"s{i} = x + {i}" for i in range(count)), "x"])


@pytest.mark.parametrize(("text", "problem"), [
    ("name = ", "is not TOML"),
    ("[" * 5000, "is not TOML"),
    ("base = 'q31'", "has no valid name"),
    ("name = 'a b'\nbase = 'q31'", "has no valid name"),
    ("name = 'a'\nbase = 'q32'", "has no valid base"),
    ("name = 'a'\nbase = ['q31']", "has no valid base"),
    (HEAD + "[constants]\nown = '3'", "does not change a formula"),
    (HEAD + "others = 'none'", "has no valid others"),
    (HEAD + "factors = 3", "has no table in [factors]"),
    (HEAD + "[factors.conv]\nout = 'Sx'", "has an unknown operation in [factors]"),
    (HEAD + "[factors]\nsums = 3", "has no table in [factors]"),
    (HEAD + "[factors.sums]\nbias = 'Sx'", "lacks the factor out in [factors]"),
    (HEAD + "[factors.sums]\nout = 'Sx'\nform = 'int'", "has an unknown form in [factors]"),
    (HEAD + "[factors.sums]\nout = 'Sx'\nlhs = 'Sx'", "has an unknown word in [factors]"),
    (HEAD + "[factors.elementadd]\nbias = 'Sl'", "has an unknown word in [factors]"),
    (HEAD + "[factors.elementadd]\nlhs = 'Sx'", "uses an unknown name in [factors]"),
    (HEAD + "[factors.rescalequantized]\nout = 'Sl'", "uses an unknown name in [factors]"),
    (HEAD + "[factors.sums]\nout = 'Sl'", "uses an unknown name in [factors]"),
    (HEAD + "[factors.sums]\nout = 3", "is not text in [factors]"),
    (HEAD + "[factors.sums]\nout = 'a = Sx'", "has no result in [factors]"),
    (HEAD + "[factors.sums]\nout = 'a = Sx\\nSx'".replace("'a", '"a').replace("Sx'", 'Sx"'),
     "has an assignment in [factors]"),
    (HEAD + "[factors.sums]\nout = 'Sz'", "uses an unknown name in [factors]"),
    (HEAD + "[factors.sums]\nout = '__import__(Sx)'", "has an invalid call in [factors]"),
    (HEAD + "[factors.sums]\nout = 'rint(Sx, 3)'", "has an invalid call in [factors]"),
    (HEAD + "[factors.sums]\nout = 'Sx.data'", "has an unsupported expression in [factors]"),
    (HEAD + "[factors.sums]\nout = 'Sx ** 9'", "has an unsupported expression in [factors]"),
    (HEAD + "[factors.sums]\nout = '9223372036854775808'", "has an invalid constant in [factors]"),
    (HEAD + "bais = 3", "has an unknown table or key"),
    (HEAD + "glow_int = 3", "has no table [glow_int]"),
    (HEAD + "[q31]\nrescale = 'x'", "has an unknown table or key"),
    (formula("x", "rescales"), "has an unknown formula in [glow_int]"),
    (HEAD + "[functions]\nmin = 'x'", "has an invalid name"),
    (HEAD + "[glow_int]\nrescale.int32 = 'x'", "has wrong element types"),
    (HEAD + "[functions]\nown.int8 = 'x'", "has wrong element types"),
    (HEAD + "[glow_int]\nrescale = 3", "is not text"),
    (formula("x + " * 300 + "x"), "is too long"),
    (formula("x +"), "is not an expression"),
    (formula("(" * 900), "is not an expression"),
    (formula("-" * 500 + "x"), "is nested too deeply"),
    (HEAD + "[constants]\nunsigned = '''x = 3\nx'''", "has an invalid constant"),
    (HEAD + "[constants]\nunsigned.int8 = '3'", "has an invalid constant"),
    (HEAD + "[constants]\nown = 'own'\n", "uses an unknown name"),
    (HEAD + "[constants]\nx = '3'\n", "has a constant with a reserved name"),
    (HEAD + "[functions]\nown = 'x + y'\n", "uses an unknown name"),
    (HEAD + "[glow_int]\nrescale.int8 = 'integer(x << 24, out)'",
     "computes an integer that may exceed 64 bits"),
    (HEAD + "[constants]\naccumulator_bits = 'out_mul'", "uses an unknown name"),
    (formula(""), "has no result"),
    (formula("y = x"), "has no result"),
    (formula("y, z = x\nx"), "has an invalid statement"),
    (formula("import os\nx"), "has an invalid statement"),
    (formula("x = x\nx"), "assigns a reserved name"),
    (formula(steps(40)), "has too many steps"),
    (formula("x.real"), "has an unsupported expression"),
    (formula("[x for x in x]"), "has an unsupported expression"),
    (formula("x + 1.5"), "has an invalid constant"),
    (formula("x + True"), "has an invalid constant"),
    (formula("'x'"), "has an invalid constant"),
    (formula("x + acc"), "uses an unknown name"),
    (formula("__import__(x)"), "calls an unknown function"),
    (formula("saturate(x, bits=8)"), "has a keyword argument"),
    (formula("saturate(x)"), "calls saturate with the wrong number of arguments"),
    (formula("integer(x, rhs)"), "names an unknown scale"),
    (formula("round_even(x)"), "has an argument of the wrong type"),
    (formula("float32(x)"), "has a float as result"),
    (formula("float32(x) + x"), "mixes types"),
    (formula("float32(x) // float32(x)"), "has an operator that floats do not support"),
    (formula("x / 2"), "has an operator that integers do not support"),
    (formula("x ** 2"), "has an operator that integers do not support"),
    (formula("x << out_mul"), "shifts by an invalid count"),
    (formula("1 << 4000000000"), "shifts by an invalid count"),
    (formula("x >> 63"), "shifts by an invalid count"),
    (formula("x // out_pre"), "may divide by zero or less"),
    (formula("divide_away(x, out_pre)"), "may divide by zero or less"),
    (formula("saturate(x, 64)"), "saturates to an invalid width"),
    (formula("hold(x, x)"), "saturates to a negative magnitude"),
    (formula("round_even(exp2(out_mul))"), "has an invalid power of two"),
    (formula("within(x, 5)"), "calls within, which only built-in formulas may use"),
    (formula("out_mul * out_mul * 4"), "computes an integer that may exceed 64 bits"),
    (formula("x if x else 1"), "has an unsupported condition"),
    (formula("x if 0 < x < 3 else 1"), "has an unsupported condition"),
    (formula("x if x in x else 1"), "has an unsupported comparison"),
    (formula("float32(x) if x < 0 else x"), "mixes types"),
    (formula("acc + bias + bias_pre + bias_mul + bias_post + out_pre + out_mul", "sums"),
     "computes an integer that may exceed 64 bits"),
    (formula("acc+bias_pre+bias_mul+bias_post+out_pre+out_mul+out_post+out_offset", "sums"),
     "uses too many descriptor words"),
    (HEAD + "[functions]\ninteger = 'integer(x, out)'", "names an unknown scale"),
    ("name = 'a'\nbase = 'float'\n[onnx]\naverage = '1'",
     "changes a formula that cannot be changed"),
])  # fmt: skip
def test_an_invalid_file_is_refused(text: str, problem: str) -> None:
    with pytest.raises(UserError) as error:
        parse_custom_formulas(text, "own.toml")
    (found,) = error.value.diagnostics
    assert found.code == "NUM001" and str(found.place) == "own.toml"
    assert f"the formulas file {problem}" in found.message


def test_a_file_with_a_base_only_selects_the_base(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(HEAD)
    assert select_numerics(str(path)) == ("glow-int", None)


def test_a_large_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(DOWN + "#" * MAX_BYTES)
    with pytest.raises(UserError, match="is too large"):
        select_numerics(str(path))


@pytest.mark.parametrize("base", NUMERICS, ids=lambda row: row.name)
def test_the_standard_formulas_fit_64_bits(base: object) -> None:
    row = next(one for one in NUMERICS if one == base)
    lines = [f'name = "own"\nbase = "{row.name}"']
    for profile in row.profiles:
        lines.append(f"[{profile}]")
        for kind, stated in FORMULAS[profile].items():
            if (profile, kind) == ("onnx", "average"):
                continue
            texts = stated if isinstance(stated, dict) else dict.fromkeys(ELEMENTS, stated)
            for element, text in texts.items():
                body, _, last = text.strip().rpartition("\n")
                lines.append(f"{kind}.{element} = '''\n{body}\n({last}) + 0'''")
    assert parse_custom_formulas("\n".join(lines), "own.toml").profiles == row.profiles


def rescaled() -> Draft:
    draft = Draft()
    source = image(draft)
    draft.emit("rescalequantized", draft.output(out_kind(source, 8, 0.2, -4)), source)
    return draft


def test_a_network_with_a_formulas_file() -> None:
    draft, custom = rescaled(), parse_custom_formulas(DOWN, "own.toml")
    made = program(draft)
    bundle = parse_bundle(compile_module(draft.module(), SMALL, formulas=custom))
    assert find_custom_formulas(bundle.metadata.formulas) == custom
    reports = [
        Device(SMALL, engine=name).run(bundle, made.inputs) for name in ("reference", "compiled")
    ]
    for report in reports:
        assert report.trap is None and report.numerics == custom.label
    (one,), (other,) = (report.outputs.values() for report in reports)
    assert np.array_equal(one, other)
    standard = parse_bundle(compile_module(draft.module(), SMALL))
    (same,) = Device(SMALL).run(standard, made.inputs).outputs.values()
    assert not np.array_equal(one, same)


@pytest.mark.parametrize("row", [
    "lhs = '1 / 0'\nrhs = 'Sr / Sy'\nout = '1'",
    "lhs = 'Sl / Sy'\nrhs = 'Sr / Sy'\nout = '1'\nlhs_pre = '1 / 0'",
    "lhs = 'Sl / Sy'\nrhs = 'Sr / Sy'\nout = '1'\nlhs_pre = 'exp2(40)'",
])  # fmt: skip
def test_factors_that_no_word_represents_are_refused(row: str) -> None:
    draft = Draft()
    left, right = (draft.input(TensorType("i8", (4, 8), quant(0.1))) for _ in range(2))
    draft.emit("elementadd", draft.output(TensorType("i8", (4, 8), quant(0.2))), left, right)
    custom = parse_custom_formulas(f"name = 'b'\nbase = 'q31'\n[factors.elementadd]\n{row}", "b")
    with pytest.raises(UserError) as error:
        compile_module(draft.module(), SMALL, numerics="q31", formulas=custom)
    assert error.value.diagnostics[0].code == "COMP001"


@pytest.mark.parametrize("word", ["rounded_bias", "result_bias"])
def test_a_bias_that_is_not_finite_is_refused(word: str) -> None:
    draft = Draft()
    source = draft.input(TensorType("i8", (2, 4), quant(0.1)))
    weights = draft.constant(np.ones((4, 3), np.int8), "i8", 0.1)
    bias = draft.constant(np.ones(3, np.int32), "i32", float(np.float32(0.1) * np.float32(0.1)))
    target = draft.output(TensorType("i8", (2, 3), quant(0.2)))
    draft.emit("fullyconnected", target, source, weights, bias)
    row = f"[factors.sums]\nout = 'Sx * Sw / Sy'\n{word} = 'real / (Sx - Sx)'"
    custom = parse_custom_formulas(f"name = 'b'\nbase = 'float'\n{row}", "b")
    with pytest.raises(UserError) as error:
        compile_module(draft.module(), SMALL, numerics="float", formulas=custom)
    (diagnostic,) = error.value.diagnostics
    assert (diagnostic.code, word in diagnostic.message) == ("COMP001", True)


def test_both_engines_compute_a_matrix_product_by_the_formulas_of_a_file() -> None:
    draft = Draft()
    left, right = (draft.input(TensorType("i8", shape, quant(0.1))) for shape in ((4, 16), (16, 8)))
    draft.emit("matmul", draft.output(TensorType("i8", (4, 8), quant(7.0))), left, right)
    text = HEAD + "[glow_int]\nsums.int8 = 'saturate((acc >> out_pre) * out_mul, 32) >> out_post'"
    custom, inputs = parse_custom_formulas(text, "own.toml"), program(draft).inputs
    results = []
    for formulas, engine in ((custom, "reference"), (custom, "compiled"), (None, "compiled")):
        bundle = parse_bundle(compile_module(draft.module(), SMALL, formulas=formulas))
        (values,) = Device(SMALL, engine=engine).run(bundle, inputs).outputs.values()
        results.append(values)
    assert np.array_equal(results[0], results[1])
    assert not np.array_equal(results[0], results[2])


def test_an_element_type_that_the_file_leaves_out_keeps_its_formula() -> None:
    text = HEAD + "[functions]\ninteger.int8 = 'saturate((x >> pre) * mul, 20) >> post'\n"
    custom = parse_custom_formulas(text, "own.toml")
    assert (
        custom.table["functions"]["integer"]["int16"] == FORMULAS["functions"]["integer"]["int16"]
    )


def test_why_prints_the_steps_of_the_file() -> None:
    draft, custom = rescaled(), parse_custom_formulas(DOWN, "own.toml")
    bundle = parse_bundle(compile_module(draft.module(), SMALL, formulas=custom))
    debugger = Debugger(bundle, program(draft).inputs, config=SMALL)
    debugger.run()
    found = explain_element(debugger, debugger.layers[0], (0, 0, 0, 0))
    assert found.made is not None and found.made.result == found.value
    (step, *_) = (one for one in found.made.steps if one.name == "result")
    assert step.formula.startswith("saturate((x >> out_pre) * out_mul, 32) >> out_post; out_mul = ")


def test_why_and_errors_name_steps_as_the_file_does() -> None:
    lines = "half = 1 << out_post >> 1", "product = saturate((x >> out_pre) * out_mul, 32)"
    draft, custom = rescaled(), parse_custom_formulas(
        formula("\n".join((*lines, "product + half + (out_offset - out_offset) >> out_post"))),
        "own.toml",
    )  # fmt: skip
    bundle = parse_bundle(compile_module(draft.module(), SMALL, formulas=custom))
    debugger = Debugger(bundle, program(draft).inputs, config=SMALL)
    debugger.run()
    found = explain_element(debugger, debugger.layers[0], (0, 0, 0, 0)).made
    assert found is not None
    steps = {one.name: one.formula.partition("; ")[0] for one in found.steps}
    assert len(steps) == len(found.steps), "each step is printed once"
    assert [name for name in steps if name in ("half", "product", "result")] == [*steps][2:-1]
    assert steps["half"] == "1 << out_post >> 1"
    assert steps["product"] == "saturate((x >> out_pre) * out_mul, 32)"
    assert steps["result"] == "product + half + (out_offset - out_offset) >> out_post"

    with pytest.raises(UserError) as error:
        parse_custom_formulas(formula("big = x + (out_mul << 30)\nbig * big * 4"), "own.toml")
    (problem,) = error.value.diagnostics
    assert str(problem.found).startswith("big * big: ")


def test_a_bundle_with_damaged_formulas_is_refused() -> None:
    draft, custom = rescaled(), parse_custom_formulas(DOWN, "own.toml")
    damaged = attrs.evolve(custom, text=custom.text.replace("32)", "64)"))
    file = compile_module(draft.module(), SMALL, formulas=damaged)
    with pytest.raises(UserError, match="saturates to an invalid width"):
        parse_bundle(file)


def test_a_layer_of_another_profile_must_not_use_the_formulas() -> None:
    draft = rescaled()
    text = DOWN.replace("glow-int", "float").replace("glow_int", "float")
    text = text.replace("out_pre", "3").replace("out_post", "3")
    custom = parse_custom_formulas(text, "own.toml")
    with pytest.raises(UserError, match="also apply to a layer with another profile"):
        compile_module(
            draft.module(), SMALL, numerics="float", formulas=custom,
            layer_numerics={"0": "float-fbgemm"},
        )  # fmt: skip


def test_common_indentation_of_a_text_is_ignored() -> None:
    text = '[q31]\nrescale = """\n{0}y = x + 1\n{0}y * 2\n{0}"""\n'
    plain, indented = (
        parse_custom_formulas(f"name = 'a'\nbase = 'q31'\n{text.format(indent)}", "a.toml")
        for indent in ("", "    ")
    )
    assert plain.table == indented.table
    assert plain.profiles == ("q31",)
