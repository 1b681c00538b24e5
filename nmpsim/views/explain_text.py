"""Integer rescalings for reading: of layers, of a bare factor, and schemas for a range."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from nmpsim.analysis.explain import (
    ErrorBand,
    Factor,
    FormErrors,
    LayerFacts,
    OperandFacts,
    ProfileFacts,
    ProfileForm,
    SchemaFit,
    Stage,
)
from nmpsim.views.columns import Column, fitted_table
from nmpsim.views.console import heading, line
from nmpsim.views.error_plot import plot_lines
from nmpsim.views.text import elem_text, plural, shape_text
from nmpsim.visible import visible_line

CHANNELS_SHOWN = 10
"""Of a stage with a factor a channel, unless all are asked for."""
_DIGITS = ".9g"


def print_layers(program: str, layers: Sequence[LayerFacts], console: Console) -> None:
    """One line a layer: its rescalings as ``pre/post/scale`` and the worst error of them."""
    line(console, f"{program}: {plural(len(layers), 'operation')}", "bold")
    if not layers:
        return
    console.print(
        fitted_table(
            [
                Column("#", [str(layer.index) for layer in layers], right=True),
                Column("number", [str(layer.number) for layer in layers], right=True),
                Column("layer", [visible_line(layer.display_name) for layer in layers], least=8),
                Column("operation", [layer.operation for layer in layers], least=8),
                Column("result", [elem_text(layer.operands[0].elem) for layer in layers]),
                Column("pre/post/scale", [_short_stages(layer) for layer in layers]),
                Column("worst error", [_worst(layer) for layer in layers], right=True),
            ],
            console,
        )
    )


def _short_stages(layer: LayerFacts) -> str:
    return ", ".join(f"{stage.name} {_short_factors(stage)}" for stage in layer.stages) or "-"


def _short_factors(stage: Stage) -> str:
    if len(stage.factors) > 1:
        return f"{len(stage.factors)} channels"
    (factor,) = stage.factors
    if factor is None:
        return "none"
    return f"{factor.integer.pre}/{factor.integer.post}/{factor.integer.mul}"


def _worst(layer: LayerFacts) -> str:
    errors = [f.relative_error for stage in layer.stages for f in stage.factors if f is not None]
    return _error_text(max(errors, key=abs)) if errors else "-"


def print_layer(layer: LayerFacts, console: Console, *, all_channels: bool = False) -> None:
    """Everything about one layer."""
    line(console, f"{layer.display_name}: {layer.operation}", "bold")
    if layer.name != layer.display_name:
        line(console, f"  full name {layer.name}")
    line(console, f"  layer {layer.index}, instruction {layer.number}, line {layer.line}")
    if layer.arithmetic:
        line(console, f"  {layer.arithmetic}")
    for note in layer.notes:
        line(console, f"  {note}")
    heading(console, "operands")
    console.print(_operand_table(layer.operands, console))
    whole = [stage for stage in layer.stages if len(stage.factors) == 1]
    if whole:
        heading(console, "rescaling: ((x >> pre) * scale + half) >> post")
        console.print(_stage_table(whole, console))
    for stage in layer.stages:
        if len(stage.factors) > 1:
            _print_channels(stage, console, len(stage.factors) if all_channels else CHANNELS_SHOWN)
    if layer.profiles:
        heading(console, "in each profile (--numerics)")
        console.print(_profile_table(layer.profiles, console))


def _operand_table(operands: Sequence[OperandFacts], console: Console) -> object:
    return fitted_table(
        [
            Column("operand", [operand.role for operand in operands]),
            Column("name", [visible_line(operand.name) for operand in operands], least=8),
            Column("type", [f"{elem_text(o.elem)} {shape_text(o.shape)}" for o in operands]),
            Column("scale", ["-" if o.scale is None else repr(o.scale) for o in operands]),
            Column(
                "offset", ["-" if o.offset is None else str(o.offset) for o in operands], right=True
            ),
        ],
        console,
    )


def _stage_table(stages: Sequence[Stage], console: Console) -> object:
    factors = [stage.factors[0] for stage in stages]
    return fitted_table(
        [
            Column("Glow's integers", [_named_form(stage) for stage in stages]),
            Column("stand for", [_approximation(factor) for factor in factors], right=True),
            Column("of", [format(stage.reals[0], _DIGITS) for stage in stages], right=True),
            Column("error", [_error_of(factor) for factor in factors], right=True),
            Column("power of 2", [_power(factor) for factor in factors], right=True),
            Column("which is", [stage.formula for stage in stages]),
        ],
        console,
    )


def _named_form(stage: Stage) -> str:
    (factor,) = stage.factors
    if factor is None:
        return f"{stage.name}: none, the factor is not positive and finite"
    form, name = factor.integer, stage.name
    text = f"{name}Pre {form.pre}, {name}Post {form.post}, {name}Scale {form.mul}"
    return f"{text} (always 0)" if factor.vanishes else text


def _print_channels(stage: Stage, console: Console, shown: int) -> None:
    heading(console, f"{stage.name}: {stage.formula}, a factor a channel, worst error first")
    order = sorted(range(len(stage.factors)), key=lambda c: -_magnitude(stage.factors[c]))[:shown]
    factors = [stage.factors[channel] for channel in order]
    forms = [None if factor is None else factor.integer for factor in factors]
    console.print(
        fitted_table(
            [
                Column("channel", [str(channel) for channel in order], right=True),
                Column(f"{stage.name}Pre", [f"{f.pre}" if f else "-" for f in forms], right=True),
                Column(f"{stage.name}Post", [f"{f.post}" if f else "-" for f in forms], right=True),
                Column(f"{stage.name}Scale", [f"{f.mul}" if f else "-" for f in forms], right=True),
                Column("stand for", [_approximation(f) for f in factors], right=True),
                Column("of", [format(stage.reals[c], _DIGITS) for c in order], right=True),
                Column("error", [_error_of(f) for f in factors], right=True),
                Column("power of 2", [_power(f) for f in factors], right=True),
            ],
            console,
        )
    )
    more = len(stage.factors) - len(order)
    if more:
        line(console, f"  and {plural(more, 'channel')} more; --all-channels shows them")


def _profile_table(profiles: Sequence[ProfileFacts], console: Console) -> object:
    texts = [
        facts.refused or ", ".join(_form_text(form) for form in facts.forms) or "no factors"
        for facts in profiles
    ]
    return fitted_table(
        [
            Column("profile", [facts.name for facts in profiles]),
            Column("factors", texts, least=40),
        ],
        console,
    )


def _form_text(form: ProfileForm) -> str:
    if len(form.forms) > 1:
        return f"{form.stage}: {len(form.forms)} channels"
    (scale,), (value,) = form.forms, form.values()
    if form.kind == "integers":
        return f"{form.stage} {scale.pre}/{scale.post}/{scale.mul}"
    if form.kind == "fixed point":
        return f"{form.stage} multiplier {scale.mul} shift {scale.pre - scale.post}"
    return f"{form.stage} {format(value, _DIGITS)}"


def _magnitude(factor: Factor | None) -> float:
    return float("inf") if factor is None else abs(factor.relative_error)


def _approximation(factor: Factor | None) -> str:
    return "-" if factor is None else format(factor.approximation, _DIGITS)


def _error_of(factor: Factor | None) -> str:
    return "-" if factor is None else _error_text(factor.relative_error)


def _error_text(error: float) -> str:
    return "exact" if error == 0 else f"{100 * error:+.4f} %"


def _power(factor: Factor | None) -> str:
    return "no" if factor is None or factor.exponent is None else f"2^{factor.exponent}"


def print_factor(
    factor: Factor, errors: FormErrors | None, band: ErrorBand | None, console: Console
) -> None:
    """A bare factor: its forms, its error over the inputs, and a plot of it."""
    form = factor.integer
    line(console, f"{factor.real!r} as a float32", "bold")
    rows = [
        ("pre, post, scale", f"{form.pre}, {form.post}, {form.mul}"),
        ("which does", _formula(factor)),
        ("stands for", f"{factor.approximation!r}, {_error_text(factor.relative_error)}"),
        ("power of 2", _power(factor)),
        ("float32 bits", factor.real.hex()),
    ]
    for label, text in rows:
        line(console, f"  {label:<17} {text}")
    if errors is None or band is None:
        line(console, "  The shift is longer than 31: every 32-bit input becomes 0.")
        return
    _print_errors(errors, console)
    heading(console, "error, in units of the last place, over the input")
    for text in plot_lines(band, console.width, blocks=console.is_terminal):
        line(console, text)


def _formula(factor: Factor) -> str:
    form = factor.integer
    shifted = f"(x >> {form.pre})" if form.pre else "x"
    if not form.post:
        return f"{shifted} * {form.mul}"
    return f"({shifted} * {form.mul} + 2^{form.post - 1}) >> {form.post}"


def _print_errors(errors: FormErrors, console: Console) -> None:
    offset = f", offset {errors.offset}" if errors.offset else ""
    kind = {"int8": "Int8", "int16": "Int16"}[errors.precision]
    heading(console, f"for {kind} results{offset}")
    exact = errors.worst_result - errors.worst
    rows = [
        ("inputs", f"{errors.input_low} to {errors.input_high}, others are clipped or overflow"),
        (
            "worst error",
            f"{errors.worst:+.4f} units of the last place, at {errors.worst_input}:"
            f" {errors.worst_result + errors.offset} for {exact + errors.offset:.4f}",
        ),
        ("mean error", f"{errors.mean:.4f} units"),
        ("not nearest", f"{100 * errors.differing:.4g} % of inputs"),
        ("overflow", _overflow_text(errors)),
    ]
    for label, text in rows:
        line(console, f"  {label:<17} {text}")


def _overflow_text(errors: FormErrors) -> str:
    ends = []
    if errors.overflow.low is not None:
        ends.append(f"at {errors.overflow.low} and below")
    if errors.overflow.high is not None:
        ends.append(f"at {errors.overflow.high} and above")
    if not ends:
        return "the 32-bit product never overflows"
    return f"the 32-bit product overflows {', '.join(ends)}"


def print_schemas(low: float, high: float, fits: Sequence[SchemaFit], console: Console) -> None:
    """What Glow's schemas make of a range."""
    line(console, f"the range {low!r} to {high!r}", "bold")
    if low > 0 or high < 0:
        line(console, "  Glow widens it to hold 0.")
    console.print(
        fitted_table(
            [
                Column("", [elem_text(fit.elem) for fit in fits]),
                Column("schema", [fit.schema for fit in fits]),
                Column("scale (step)", [repr(fit.scale) for fit in fits], right=True),
                Column("offset", [str(fit.offset) for fit in fits], right=True),
                Column("lowest", [format(fit.low, ".6g") for fit in fits], right=True),
                Column("highest", [format(fit.high, ".6g") for fit in fits], right=True),
                Column("range used", [f"{100 * fit.use:.1f} %" for fit in fits], right=True),
            ],
            console,
        )
    )
