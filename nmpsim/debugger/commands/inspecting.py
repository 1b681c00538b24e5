"""Commands that show the state of the run without changing it."""

from __future__ import annotations

from typing import Any

import attrs

from nmpsim.arrays import Array
from nmpsim.bundle.metadata import Layer, Tensor
from nmpsim.debugger.audit import describe_bias_scale
from nmpsim.debugger.commands.command import (
    Address,
    CommandResult,
    DebuggerCommand,
    format_table,
    make_result,
)
from nmpsim.debugger.commands.context import CommandContext
from nmpsim.debugger.commands.moving import format_location, format_next_instruction
from nmpsim.debugger.inspect import (
    count_saturation,
    disassemble,
    find_tensor,
    format_type,
    list_core_states,
    list_layer_states,
    ravel_index,
    read_memory,
    read_registers,
    read_values,
    unravel_index,
)
from nmpsim.report.device_use import describe_limiters

MAX_SHOWN = 256
"""Maximum number of elements of a tensor that are listed, also in JSON."""
MAX_CHANNELS = 6
"""Maximum number of channels of a saturation that are listed."""


def show_location(context: CommandContext) -> CommandResult:
    """Show the current layer, cycle, position and next instruction."""
    at, trap = context.debugger.get_location(), context.debugger.trap
    message = None if trap is None else trap.message
    return make_result(
        *([] if message is None else [f"trap: {message}"]),
        format_location(at),
        f"{at.layers_done} of {at.layers} layers done",
        *format_next_instruction(at),
        record=at,
        trap=message,
    )


def list_layers(context: CommandContext) -> CommandResult:
    """List the state, cycles and saturation of all layers."""
    found = list_layer_states(context.debugger)
    columns = ("index", ("name", "display_name"), "operation", "line", "placement", "state",
               "cycles", "saturated", "limited_by")  # fmt: skip
    return make_result(*format_table(found, columns), layers=found)


@attrs.frozen
class OperandType:
    """Role, name and type of one operand of a layer."""

    role: str
    name: str
    text: str


def show_layer(context: CommandContext, layer: Layer | None = None) -> CommandResult:
    """Show the types, cycles, transfers and critical path of a layer."""
    chosen = layer or context.get_current_layer()
    run = context.debugger.report()
    report, state = run.layers[chosen.index], list_layer_states(context.debugger, run)[chosen.index]
    output, use = chosen.output, report.use
    lir = context.get_layer_facts(chosen) if context.debugger.bundle.debug else None
    operands = [
        OperandType(one.role, one.name, format_type(one)) for one in (lir.operands if lir else ())
    ]
    busy = {name: cycles for name, cycles in report.core_cycles.items() if cycles}
    path = {name: cycles for name, cycles in report.critical_path.items() if cycles}
    limited_by = describe_limiters(path, use)
    cost = ", cycles not counted" if run.host.cycles is None else f", {report.cycles} cycles"
    facts = [
        "" if chosen.name == chosen.display_name else f"full name {chosen.name}",
        f"line {chosen.line}, output {context.get_display_name(output.name)}"
        f" {format_type(output)} at {output.address:#x}",
        f"{report.cycles} cycles, {report.macs} MACs, {report.bytes_read} bytes read,"
        f" {report.bytes_written} written, {state.saturated} values saturated",
        chosen.numerics and f"arithmetic {chosen.numerics}",
        chosen.fused and f"made of {', '.join(chosen.fused)}",
        chosen.reason and f"on the host: {chosen.reason}{cost}",
        *(f"{one.role:<8} {context.get_display_name(one.name)}: {one.text}" for one in operands),
        describe_bias_scale(lir),
    ]
    if busy:
        facts += [
            f"cores with work: {report.cores}, MAC utilization {use.mac_utilization:.1%}",
            f"DRAM {use.describe_dram()}",
            f"core cycles {_format_cycles(busy)}",
        ]
    if path:
        queueing = f"{report.queueing} cycles queued behind other transfers"
        facts += [f"critical path {_format_cycles(path)}", f"{limited_by}; {queueing}"]
    return make_result(
        f"layer {chosen.index} {chosen.display_name}: {chosen.operation}, {chosen.placement},"
        f" {state.state}",
        *(f"  {fact}" for fact in facts if fact),
        record=state,
        cycles=report.cycles,
        macs=report.macs,
        cores=report.cores,
        use=use,
        core_cycles=busy,
        critical_path=path,
        queueing=report.queueing,
        limited_by=limited_by,
        fused=chosen.fused,
        numerics=chosen.numerics,
        output=output,
        operands=operands,
    )


def _format_cycles(cycles: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in cycles.items())


def show_tensor(
    context: CommandContext, name: str = "", at: tuple[int, ...] = (), *, memory: bool = False
) -> CommandResult:
    """Show the values of a tensor, or one element."""
    name = name or context.get_current_layer().name
    found, values = context.find_constant(name) or _read_tensor(context, name, memory)
    if at:
        return _show_element(found, values, at)
    flat, facts = values.reshape(-1), {}
    if flat.size:
        facts = {"min": flat.min().item(), "max": flat.max().item(), "mean": float(flat.mean())}
    # Constants of the LIR have no address, because the program has another layout of them.
    place = f" at {found.address:#x}" if found.address else ""
    return make_result(
        f"{context.get_display_name(name)} {format_type(found)}{place}",
        *(["  " + ", ".join(f"{k} {v:.6g}" for k, v in facts.items())] if facts else []),
        *_format_rows(values),
        record=facts,
        tensor=found,
        values=flat[:MAX_SHOWN].tolist(),
    )


def _read_tensor(context: CommandContext, name: str, in_memory: bool) -> tuple[Tensor, Array]:
    """Return a tensor as its layer wrote it, or as memory is now."""
    debugger = context.debugger
    found = find_tensor(debugger, name)
    for one in debugger.layers:
        if one.output == found and not in_memory and debugger.is_layer_done(one.index):
            return found, debugger.layer_outputs[one.index]
    return found, read_values(debugger, found)


def _show_element(found: Tensor, values: Array, at: tuple[int, ...]) -> CommandResult:
    flat = ravel_index(at, found.shape, f"tensor {found.name}")
    value = values.reshape(-1)[flat].item()
    text, data = f"{list(at)} = {value}", dict[str, Any]()
    if found.scale is not None:
        data["real"] = found.scale * (value - (found.offset or 0))
        text += f", stands for {data['real']:.6g}"
    if found.address:
        data["address"] = found.address + flat * values.itemsize
        text += f", at {data['address']:#x}"
    return make_result(text, at=at, value=value, **data)


def _format_rows(values: Array) -> list[str]:
    """Return the first rows of a tensor, along its last dimension, as lines."""
    width = values.shape[-1] if values.ndim else 1
    rows = values.reshape(-1, width) if values.size else values.reshape(0, 1)
    shown = rows[: max(1, MAX_SHOWN // max(width, 1))]
    number = "{:.5g}" if values.dtype.kind == "f" else "{}"
    lines = [
        f"  {list(unravel_index(index, values.shape[:-1]))}"
        f" {' '.join(map(number.format, row[:MAX_SHOWN]))}"
        for index, row in enumerate(shown)
    ]
    if len(shown) < len(rows):
        lines.append(f"  ... {len(rows) - len(shown)} more rows; name coordinates for an element")
    return lines


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
    name = ("layer", lambda one: context.get_display_name(one["layer"]))
    columns = (name, "stage", "side", "count", "worst", "first", "channels")
    lines = format_table(found, columns, "nothing has saturated so far")
    return make_result(*lines, saturation=found)


def list_cores(context: CommandContext) -> CommandResult:
    """List the status, cycle and next instruction of all cores."""
    found = list_core_states(context.debugger)
    pc = ("pc", lambda one: f"{one.pc:#x}")
    layer = ("layer", lambda one: context.get_display_name(one.layer))
    columns = ("core", "status", "clock", pc, layer, "retired", ("next", "instruction"))
    return make_result(*format_table(found, columns), cores=found)


def show_registers(context: CommandContext, core: int | None = None) -> CommandResult:
    """Show the registers of a core."""
    core = _select_core(context, core)
    found = read_registers(context.debugger, core)
    cells = [f"{name:<9} {value:08x}" for name, value in found.items()]
    lines = ["   ".join(cells[i : i + 4]) for i in range(0, len(cells), 4)]
    return make_result(f"core {core}", *lines, core=core, registers=found)


def show_memory(
    context: CommandContext, address: Address, count: int = 64, *, core: int | None = None
) -> CommandResult:
    """Show bytes of memory as a core sees them."""
    core = _select_core(context, core)
    data = read_memory(context.debugger, address, count, core)
    lines = [f"{address + i:#010x}  {data[i : i + 16].hex(' ')}" for i in range(0, len(data), 16)]
    return make_result(*lines, address=address, core=core, bytes=data)


def _select_core(context: CommandContext, core: int | None) -> int:
    """Return a core, or the core that executes next if it is None."""
    return context.debugger.find_next_core() or 0 if core is None else core


def show_code(
    context: CommandContext, address: Address | None = None, *, core: int | None = None
) -> CommandResult:
    """Show the instructions around an address or around a core's next instruction."""
    core = _select_core(context, core)
    lines = []
    found = disassemble(context.debugger, core, address)
    for one in found:
        if one.symbol:
            lines.append(f"{one.symbol}:")
        lines.append(f"{'>' if one.is_next else ' '} {one.address:#010x}  {one.text}")
    if not lines:
        lines.append(f"there is no code; core {core} has not started yet, or name an address")
    return make_result(*lines, core=core, code=found)


def show_source(context: CommandContext, layer: Layer | None = None) -> CommandResult:
    """Show the LIR text around a layer."""
    chosen = layer or context.get_current_layer()
    numbers = context.find_instruction_numbers(chosen)
    lines = [
        f"{'>' if one.number in numbers else ' '} {one.number:4d} {context.format_instruction(one)}"
        for one in context.get_module().instructions
        if min(numbers) - 4 <= one.number <= max(numbers) + 4
    ]
    return make_result(*lines, layer=chosen.index, numbers=sorted(numbers))


COMMANDS = (
    DebuggerCommand("where", "where the run is", show_location, ("pc", "status")),
    DebuggerCommand("layers", "every layer: state, cycles, saturation", list_layers, ("ls",)),
    DebuggerCommand("layer [LAYER]", "all about a layer", show_layer, ("l",)),
    DebuggerCommand(
        "tensor [TENSOR|LAYER] [I J ...] [memory]",
        "values of a tensor, or one element",
        show_tensor,
        ("t", "print", "p"),
        details="Layers may share memory: an output is shown as its layer left it, with memory"
        " as the bytes are now. Weights and biases are shown as the LIR has them.",
    ),
    DebuggerCommand(
        "saturation [LAYER]",
        "saturated and clipped values, by stage and side",
        show_saturation,
        ("sat",),
    ),
    DebuggerCommand("source [LAYER]", "the LIR around a layer", show_source, ("list",)),
    DebuggerCommand("cores", "every core: status, cycle, next instruction", list_cores),
    DebuggerCommand("registers [CORE]", "registers of a core", show_registers, ("regs",)),
    DebuggerCommand(
        "memory ADDRESS [BYTES] [core C]",
        "bytes as a core sees them",
        show_memory,
        ("x",),
    ),
    DebuggerCommand(
        "code [ADDRESS] [core C]",
        "the program around a core's next instruction",
        show_code,
        ("disassemble",),
    ),
)
