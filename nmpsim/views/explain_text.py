"""Integer rescalings of layers and factors, and schemas for a range, as text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from rich.console import Console

from nmpsim.analysis.explain import (
    ErrorBand,
    Factor,
    FactorErrors,
    OperationFacts,
    ProfileRescalings,
    ProfileStage,
    RescaleStage,
    SchemaFit,
)
from nmpsim.diagnostics import format_count
from nmpsim.views.console import print_facts, print_heading, print_line, print_table
from nmpsim.views.error_plot import draw_text_plot
from nmpsim.views.measures import NumberColumn, Readers, format_tensor_type, make_columns
from nmpsim.views.text import format_elem

CHANNELS_SHOWN = 10
"""Channels of a stage that are shown without ``--all-channels``."""
_DIGITS = ".9g"


def print_layers(program: str, layers: Sequence[OperationFacts], console: Console) -> None:
    """Print a table of layers with their rescalings and worst errors."""
    print_line(console, f"{program}: {format_count(len(layers), 'operation')}", "bold")
    if not layers:
        return
    print_table(
        console,
        layers,
        *make_columns(
            "explain_layers",
            result=lambda layer: format_elem(layer.operands[0].elem),
            stages=_short_stages,
            worst=_worst,
        ),
    )


def _short_stages(layer: OperationFacts) -> str:
    return ", ".join(f"{stage.name} {_short_factors(stage)}" for stage in layer.stages) or "-"


def _short_factors(stage: RescaleStage) -> str:
    if len(stage.factors) > 1:
        return f"{len(stage.factors)} channels"
    (factor,) = stage.factors
    if factor is None:
        return "none"
    return f"{factor.integer.pre}/{factor.integer.post}/{factor.integer.mul}"


def _worst(layer: OperationFacts) -> str | None:
    errors = [f.relative_error for stage in layer.stages for f in stage.factors if f is not None]
    return _error_text(max(errors, key=abs)) if errors else None


def print_layer_details(
    _: str, layers: Sequence[OperationFacts], console: Console, *, all_channels: bool
) -> None:
    """Print operands, rescalings and profiles of layers; the name of the program is ignored."""
    for layer in layers:
        print_line(console, f"{layer.display_name}: {layer.operation}", "bold")
        if layer.name != layer.display_name:
            print_line(console, f"  full name {layer.name}")
        of_text = f", line {layer.line}" if layer.line else ""
        print_line(console, f"  layer {layer.index}, instruction {layer.number}{of_text}")
        if layer.arithmetic:
            print_line(console, f"  {layer.arithmetic}")
        for note in layer.notes:
            print_line(console, f"  {note}")
        print_heading(console, "operands")
        columns = make_columns("explain_operands", type=format_tensor_type)
        print_table(console, layer.operands, *columns)
        whole = [(stage, 0) for stage in layer.stages if len(stage.factors) == 1]
        if whole:
            print_heading(console, "rescaling: ((x >> pre) * scale + half) >> post")
            print_table(console, whole, *make_columns("explain_factors", **_FACTOR_READERS))
        for stage in layer.stages:
            if len(stage.factors) > 1:
                shown = len(stage.factors) if all_channels else CHANNELS_SHOWN
                _print_channels(stage, console, shown)
        if layer.profiles:
            print_heading(console, "in each profile (--numerics)")
            print_table(console, layer.profiles, *make_columns("explain_profiles", factors=_forms))


def _named_form(stage: RescaleStage) -> str:
    (factor,) = stage.factors
    if factor is None:
        return f"{stage.name}: none, the factor is not positive and finite"
    form, name = factor.integer, stage.name
    text = f"{name}Pre {form.pre}, {name}Post {form.post}, {name}Scale {form.mul}"
    return f"{text} (always 0)" if factor.is_zero else text


def _print_channels(stage: RescaleStage, console: Console, shown: int) -> None:
    print_heading(
        console, f"{stage.name}: {stage.formula}, a factor per channel, worst error first"
    )
    order = sorted(range(len(stage.factors)), key=lambda c: -_magnitude(stage.factors[c]))[:shown]
    _, *columns, _ = make_columns("explain_factors", **_FACTOR_READERS)
    print_table(
        console,
        [(stage, channel) for channel in order],
        NumberColumn("channel", lambda row: str(row[1])),
        *(
            NumberColumn(f"{stage.name}{title}", _of_factor(attrgetter(f"integer.{name}")), str)
            for title, name in (("Pre", "pre"), ("Post", "post"), ("Scale", "mul"))
        ),
        *columns,
    )
    more = len(stage.factors) - len(order)
    if more:
        print_line(
            console, f"  and {format_count(more, 'channel')} more; --all-channels shows them"
        )


def _forms(facts: ProfileRescalings) -> str:
    return facts.refused or ", ".join(map(_form_text, facts.forms)) or "no factors"


def _form_text(form: ProfileStage) -> str:
    if len(form.forms) > 1:
        return f"{form.stage}: {len(form.forms)} channels"
    (scale,), (value,) = form.forms, form.list_values()
    if form.kind == "integers":
        return f"{form.stage} {scale.pre}/{scale.post}/{scale.mul}"
    if form.kind == "fixed point":
        return f"{form.stage} multiplier {scale.mul} shift {scale.pre - scale.post}"
    return f"{form.stage} {format(value, _DIGITS)}"


def _magnitude(factor: Factor | None) -> float:
    return float("inf") if factor is None else abs(factor.relative_error)


def _of_factor(fact: Callable[[Factor], Any]) -> Callable[[tuple[RescaleStage, int]], Any]:
    """Return a function from (stage, channel) to ``fact`` of its factor; None without a factor."""

    def read(row: tuple[RescaleStage, int]) -> Any:
        factor = row[0].factors[row[1]]
        return None if factor is None else fact(factor)

    return read


def _error_text(error: float) -> str:
    return "exact" if error == 0 else f"{100 * error:+.4f} %"


def _power(factor: Factor | None) -> str:
    return "no" if factor is None or factor.exponent is None else f"2^{factor.exponent}"


_FACTOR_READERS: Readers = {
    "integers": lambda row: _named_form(row[0]),
    "value": _of_factor(lambda factor: factor.approximation),
    "real": lambda row: row[0].reals[row[1]],
    "error": _of_factor(lambda factor: _error_text(factor.relative_error)),
    "power": lambda row: _power(row[0].factors[row[1]]),
    "formula": lambda row: row[0].formula,
}
"""Readers of columns for rows (stage, channel)."""


def print_factor(
    factor: Factor, errors: FactorErrors | None, console: Console, *, band: ErrorBand | None
) -> None:
    """Print the integers of a factor, their errors and a plot of the errors."""
    form = factor.integer
    print_line(console, f"{factor.real!r} as a float32", "bold")
    rows = [
        ("pre, post, scale", f"{form.pre}, {form.post}, {form.mul}"),
        ("formula", _formula(factor)),
        ("value", f"{factor.approximation!r}, {_error_text(factor.relative_error)}"),
        ("power of 2", _power(factor)),
        ("float32 bits", factor.real.hex()),
    ]
    print_facts(console, rows, 17)
    if errors is None or band is None:
        print_line(console, "  The shift is longer than 31: every 32-bit input becomes 0.")
        return
    _print_errors(errors, console)
    print_heading(console, "error, in units of the last place, over the input")
    for text in draw_text_plot(band, console.width, blocks=console.is_terminal):
        print_line(console, text)


def _formula(factor: Factor) -> str:
    form = factor.integer
    shifted = f"(x >> {form.pre})" if form.pre else "x"
    if not form.post:
        return f"{shifted} * {form.mul}"
    return f"({shifted} * {form.mul} + 2^{form.post - 1}) >> {form.post}"


def _print_errors(errors: FactorErrors, console: Console) -> None:
    offset = f", offset {errors.offset}" if errors.offset else ""
    kind = {"int8": "Int8", "int16": "Int16"}[errors.precision]
    print_heading(console, f"for {kind} results{offset}")
    exact = errors.worst_result - errors.worst
    rows = [
        ("inputs", f"{errors.input_low} to {errors.input_high}, others saturate or overflow"),
        (
            "worst error",
            f"{errors.worst:+.4f} units of the last place, at {errors.worst_input}:"
            f" {errors.worst_result} for {exact:.4f}",
        ),
        ("mean error", f"{errors.mean:.4f} units"),
        ("not nearest", f"{100 * errors.differing:.4g} % of inputs"),
        ("overflow", _overflow_text(errors)),
    ]
    print_facts(console, rows, 17)


def _overflow_text(errors: FactorErrors) -> str:
    ends = []
    if errors.overflow.low is not None:
        ends.append(f"at {errors.overflow.low} and below")
    if errors.overflow.high is not None:
        ends.append(f"at {errors.overflow.high} and above")
    if not ends:
        return "the 32-bit product never overflows"
    return f"the 32-bit product overflows {', '.join(ends)}"


def print_schemas(low: float, high: float, fits: Sequence[SchemaFit], console: Console) -> None:
    """Print scale and offset of a range for each of Glow's schemas."""
    print_line(console, f"the range {low!r} to {high!r}", "bold")
    if low > 0 or high < 0:
        print_line(console, "  Glow widens it to hold 0.")
    print_table(
        console, fits, *make_columns("explain_schemas", use=lambda fit: f"{100 * fit.use:.1f} %")
    )
