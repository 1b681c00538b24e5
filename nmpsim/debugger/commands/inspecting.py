"""Commands that show the state of the run without changing it."""

from __future__ import annotations

from typing import Any

import attrs

from nmpsim.arrays import Array
from nmpsim.bundle.metadata import Layer, Tensor
from nmpsim.debugger.audit import describe_bias_scale
from nmpsim.debugger.backtrace import (
    CallFrame,
    StackFrame,
    list_frames_with_state,
    list_stack_frames,
)
from nmpsim.debugger.commands.command import Address, Text, UsageError, bind_arguments
from nmpsim.debugger.commands.context import CommandContext
from nmpsim.debugger.commands.results import (
    CommandResult,
    format_location,
    format_next_instruction,
)
from nmpsim.debugger.inspect import (
    count_saturation,
    disassemble,
    find_tensor,
    format_type,
    get_tensors,
    list_core_states,
    list_layer_states,
    ravel_index,
    read_memory,
    read_registers,
    read_values,
    unravel_index,
)
from nmpsim.debugger.variables import evaluate_variable, find_variables
from nmpsim.diagnostics import fail
from nmpsim.report.savings import describe_savings, sum_path_by_limiter

MAX_SHOWN = 256
"""Maximum number of elements of a tensor that are listed, also in JSON."""
MAX_CHANNELS = 6
"""Maximum number of channels of a saturation that are listed."""


def show_location(context: CommandContext) -> CommandResult:
    """Show the current layer, cycle, position and next instruction."""
    trap, at = context.debugger.trap, context.debugger.get_location()
    message = None if trap is None else trap.message
    lines = [] if message is None else [f"trap: {message}"]
    lines += [format_location(at), f"{at.layers_done} of {at.layers} layers done"]
    return context.make_result([*lines, format_next_instruction(at)], at, trap=message)


def list_layers(context: CommandContext) -> CommandResult:
    """List the state, cycles and saturation of all layers."""
    return context.make_result("layers", layers=list_layer_states(context.debugger))


@attrs.frozen
class OperandType:
    """Type of a layer's operand as text, with the operand's role and name."""

    role: str
    name: str
    text: str


def show_layer(context: CommandContext, layer: Layer | None = None) -> CommandResult:
    """Show the types, cycles, transfers and critical path of a layer."""
    chosen = layer or context.get_current_layer()
    run = context.debugger.report()
    report, state = run.layers[chosen.index], list_layer_states(context.debugger, run)[chosen.index]
    lir = context.get_layer_facts(chosen) if context.debugger.bundle.has_module else None
    operands = [
        OperandType(one.role, one.name, format_type(one)) for one in (lir.operands if lir else ())
    ]
    path = {name: cycles for name, cycles in report.critical_path.items() if cycles}
    return context.make_result(
        "layer",
        state,
        cycles=report.cycles,
        macs=report.macs,
        cores=report.cores,
        use=report.use,
        core_cycles={name: cycles for name, cycles in report.core_cycles.items() if cycles},
        critical_path=path,
        queueing=report.queueing,
        limits=describe_savings(sum_path_by_limiter(path), sum(path.values()), is_bound=True),
        fused=chosen.fused,
        numerics=chosen.numerics,
        output=chosen.output,
        operands=operands,
        _bytes_read=report.bytes_read,
        _bytes_written=report.bytes_written,
        _reason=chosen.reason,
        _has_host_cycles=run.host.cycles is not None,
        _bias_scale=describe_bias_scale(lir),
    )


def show_tensor(
    context: CommandContext, name: str = "", at: tuple[int, ...] = (), *, memory: bool = False
) -> CommandResult:
    """Show the values of a tensor, or the value of one element."""
    name = name or context.get_current_layer().name
    found, values = context.find_constant(name) or _read_tensor(context, name, memory)
    if at:
        return _show_element(context, found, values, at)
    flat, facts = values.reshape(-1), {}
    if flat.size:
        facts = {"min": flat.min().item(), "max": flat.max().item(), "mean": float(flat.mean())}
    width = values.shape[-1] if values.ndim else 1
    rows = values.reshape(-1, width) if values.size else values.reshape(0, 1)
    shown = rows[: max(1, MAX_SHOWN // max(width, 1))]
    number = "{:.5g}" if values.dtype.kind == "f" else "{}"
    return context.make_result(
        "tensor",
        facts,
        tensor=found,
        values=flat[:MAX_SHOWN].tolist(),
        _name=name,
        _rows=[
            (list(unravel_index(index, values.shape[:-1])), map(number.format, row[:MAX_SHOWN]))
            for index, row in enumerate(shown)
        ],
        _hidden_rows=len(rows) - len(shown),
    )


def _read_tensor(context: CommandContext, name: str, in_memory: bool) -> tuple[Tensor, Array]:
    """Return a tensor as its layer wrote it, or as memory is now."""
    debugger = context.debugger
    found = find_tensor(debugger, name)
    for one in debugger.layers:
        if one.output == found and not in_memory and debugger.is_layer_done(one.index):
            if one.in_scratchpads:
                reason = debugger.explain_missing_output(one.index)
                hint = "Debug the bundle instead of the core file, or add `memory`."
                raise fail("DEBUG002", f"layer {one.name} {reason}", hint=hint)
            return found, debugger.layer_outputs[one.index]
    return found, read_values(debugger, found)


def _show_element(
    context: CommandContext, found: Tensor, values: Array, at: tuple[int, ...]
) -> CommandResult:
    flat = ravel_index(at, found.shape, f"tensor {found.name}")
    value, data = values.reshape(-1)[flat].item(), dict[str, Any]()
    if found.scale is not None:
        data["real"] = found.scale * (value - (found.offset or 0))
    if found.address:
        data["address"] = found.address + flat * values.itemsize
    return context.make_result("element", at=at, value=value, **data)


def show_saturation(context: CommandContext, layer: Layer | None = None) -> CommandResult:
    """Show the saturated and clipped values of one layer or all layers."""
    debugger, found = context.debugger, []
    for chosen in debugger.layers if layer is None else (layer,):
        for one in count_saturation(debugger, chosen):
            counts = [f"{channel}: {count}" for channel, count in one.channels]
            channels = ", ".join(counts[:MAX_CHANNELS]) + " ..." * (len(counts) > MAX_CHANNELS)
            found.append({
                "layer": chosen.name, "stage": one.stage, "side": one.side, "count": one.count,
                "worst": one.worst, "first": list(one.first), "channels": channels,
            })  # fmt: skip
    return context.make_result("saturation", saturation=found)


def list_cores(context: CommandContext) -> CommandResult:
    """List the status, cycle and next instruction of all cores."""
    return context.make_result("cores", cores=list_core_states(context.debugger))


def show_registers(context: CommandContext, core: int | None = None) -> CommandResult:
    """Show the registers of a core."""
    core = _select_core(context, core)
    found = read_registers(context.debugger, core)
    return context.make_result("registers", core=core, registers=found)


def show_memory(
    context: CommandContext, address: Address, count: int = 64, *, core: int | None = None
) -> CommandResult:
    """Show bytes of memory as a core reads them."""
    core = _select_core(context, core)
    data = read_memory(context.debugger, address, count, core)
    return context.make_result("memory", address=address, core=core, bytes=data)


def _select_core(context: CommandContext, core: int | None) -> int:
    """Return a core, or the core that executes next if it is None."""
    return context.debugger.find_next_core() or 0 if core is None else core


def show_code(
    context: CommandContext, address: Address | None = None, *, core: int | None = None
) -> CommandResult:
    """Show the instructions around an address or around a core's next instruction."""
    core = _select_core(context, core)
    return context.make_result("code", core=core, code=disassemble(context.debugger, core, address))


def show_backtrace(context: CommandContext, *, core: int | None = None) -> CommandResult:
    """Show the functions that a core is in, with inlined calls, innermost first."""
    core = _select_core(context, core)
    frames = list_stack_frames(context.debugger, core)
    return context.make_result("backtrace", core=core, frames=frames)


def show_variables(
    context: CommandContext, *, frame: int = 0, core: int | None = None
) -> CommandResult:
    """Show the parameters and local variables of a function."""
    shown, call = _select_frame(context, frame, core)
    found = find_variables(context.debugger, call, shown.function)
    values = [
        evaluate_variable(context.debugger, call, one.name, [one]) for one in found if one.function
    ]
    return context.make_result("variables", core=call.core, frame=shown, variables=values)


def show_variable(
    context: CommandContext, text: Text, *, frame: int = 0, core: int | None = None
) -> CommandResult:
    """Show a variable or a part of one; other names are those of tensors."""
    debugger, word = context.debugger, (text.split() or [""])[0]
    if word in get_tensors(debugger) or not debugger.source_map.variables:
        arguments = bind_arguments(context, show_tensor, text.split())
        return show_tensor(context, **arguments)
    shown, call = _select_frame(context, frame, core)
    visible = find_variables(debugger, call, shown.function)
    value = evaluate_variable(debugger, call, text, visible)
    return context.make_result("variable", variable=value)


def _select_frame(
    context: CommandContext, number: int, core: int | None
) -> tuple[StackFrame, CallFrame]:
    """Return a frame of a core's backtrace; raise UsageError if there are fewer."""
    frames = list_frames_with_state(context.debugger, _select_core(context, core))
    if not 0 <= number < len(frames):
        raise UsageError(f"the backtrace has the frames 0 to {len(frames) - 1}", str(number))
    return frames[number]


def show_source(context: CommandContext, layer: Layer | None = None) -> CommandResult:
    """Show the LIR text around a layer."""
    chosen = layer or context.get_current_layer()
    numbers = context.find_instruction_numbers(chosen)
    return context.make_result(
        "source",
        layer=chosen.index,
        numbers=sorted(numbers),
        _instructions=[
            (one.number, context.format_instruction(one))
            for one in context.get_module().instructions
            if min(numbers) - 4 <= one.number <= max(numbers) + 4
        ],
    )
