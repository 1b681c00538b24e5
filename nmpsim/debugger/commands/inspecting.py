"""Commands that show the state of the run without changing it."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.bundle.metadata import Tensor
from nmpsim.debugger.commands.arguments import Arguments
from nmpsim.debugger.commands.command import (
    Column,
    Command,
    CommandResult,
    format_table,
    list_records,
    make_result,
    to_json_value,
)
from nmpsim.debugger.commands.context import Context
from nmpsim.debugger.commands.moving import format_location, format_next_instruction
from nmpsim.debugger.inspect import (
    count_saturation,
    disassemble,
    find_address,
    find_layer,
    find_tensor,
    list_core_states,
    list_layer_states,
    ravel_index,
    read_memory,
    read_registers,
    read_values,
)
from nmpsim.report.device_use import describe_limiters

MAX_SHOWN = 256
"""Maximum number of elements of a tensor that are listed, also in JSON."""


def show_location(context: Context, arguments: Arguments) -> CommandResult:
    """Show where the run is."""
    arguments.expect_end()
    at = context.debugger.get_location()
    trap = context.debugger.execution.trap
    lines = [
        format_location(at),
        f"{at.layers_done} of {at.layers} layers done",
        *format_next_instruction(at),
    ]
    if trap is not None:
        lines.insert(0, f"trap: {trap.message}")
    return CommandResult(tuple(lines), attrs.asdict(at) | {"trap": trap.message if trap else None})


def list_layers(context: Context, arguments: Arguments) -> CommandResult:
    """List all layers."""
    arguments.expect_end()
    columns: tuple[Column, ...] = (
        "index", ("name", lambda one: one.display_name), "operation", "line", "placement", "state",
        "cycles", "saturated", "limited_by",
    )  # fmt: skip
    return list_records("layers", list_layer_states(context.debugger), columns)


def show_layer(context: Context, arguments: Arguments) -> CommandResult:
    """Show everything about one layer."""
    chosen = _layer(context, arguments)
    arguments.expect_end()
    run = context.debugger.report()
    report, state = run.layers[chosen.index], list_layer_states(context.debugger, run)[chosen.index]
    output = chosen.output
    busy = {name: cycles for name, cycles in report.core_cycles.items() if cycles}
    lines = [
        f"layer {chosen.index} {chosen.display_name}: {chosen.operation}, {chosen.placement},"
        f" {state.state}",
        *([] if chosen.name == chosen.display_name else [f"  full name {chosen.name}"]),
        f"  line {chosen.line}, output {context.get_display_name(output.name)} {_type(output)}"
        f" at {output.address:#x}",
        f"  {report.cycles} cycles, {report.macs} MACs, {report.bytes_read} bytes read,"
        f" {report.bytes_written} written, {state.saturated} values saturated",
    ]
    if chosen.numerics:
        lines.append(f"  arithmetic {chosen.numerics}")
    if chosen.fused:
        lines.append(f"  made of {', '.join(chosen.fused)}")
    if chosen.reason:
        cost = "" if run.host.cycles is None else f", {report.cycles} cycles"
        lines.append(f"  on the host: {chosen.reason}{cost or ', cycles not counted'}")
    operands = context.list_operands(chosen)
    lines += [
        f"  {one.role:<8} {context.get_display_name(one.name)}: {one.text}" for one in operands
    ]
    note = context.describe_bias(chosen)
    lines += [f"  {note}"] if note else []
    if busy:
        cores = f"cores with work: {report.cores}"
        lines.append(f"  {cores}, MAC utilization {report.use.mac_utilization:.1%}")
        lines.append(f"  DRAM {report.use.describe_dram()}")
        lines.append("  core cycles " + ", ".join(f"{n} {c}" for n, c in busy.items()))
    path = {name: cycles for name, cycles in report.critical_path.items() if cycles}
    limited_by = describe_limiters(path, report.use)
    if path:
        lines.append("  critical path " + ", ".join(f"{n} {c}" for n, c in path.items()))
        lines.append(f"  {limited_by}; {report.queueing} cycles queued behind other transfers")
    data = attrs.asdict(state) | {
        "cycles": report.cycles,
        "macs": report.macs,
        "cores": report.cores,
        "use": attrs.asdict(report.use),
        "core_cycles": busy,
        "critical_path": path,
        "queueing": report.queueing,
        "limited_by": limited_by,
        "fused": list(chosen.fused),
        "numerics": chosen.numerics,
        "output": _tensor_data(output),
        "operands": [attrs.asdict(one) for one in operands],
    }
    return CommandResult(tuple(lines), data)


def _layer(context: Context, arguments: Arguments) -> Any:
    if arguments:
        return find_layer(context.debugger, arguments.take_word("a layer"))
    return context.get_current_layer()


def _type(tensor: Tensor) -> str:
    shape = "x".join(map(str, tensor.shape)) or "scalar"
    if tensor.scale is None:
        return f"{tensor.elem} {shape}"
    return f"{tensor.elem} {shape} scale {tensor.scale:.9g} offset {tensor.offset or 0}"


def _tensor_data(tensor: Tensor) -> dict[str, Any]:
    return attrs.asdict(tensor) | {"shape": list(tensor.shape)}


def show_tensor(context: Context, arguments: Arguments) -> CommandResult:
    """Show the values of a tensor."""
    in_memory = arguments.take_flag("memory")
    name = arguments.take_word("a tensor") if arguments else context.get_current_layer().name
    at = arguments.take_coordinates()
    found, values = context.find_constant(name) or _in_dram(context, name, in_memory)
    if at:
        return _element(found, values, at)
    flat = values.reshape(-1)
    data: dict[str, Any] = {"tensor": _tensor_data(found), "values": _listed(flat[:MAX_SHOWN])}
    lines = [f"{context.get_display_name(name)} {_type(found)}{_place(found.address)}"]
    if flat.size:
        facts = {"min": flat.min().item(), "max": flat.max().item(), "mean": float(flat.mean())}
        lines.append("  " + ", ".join(f"{k} {v:.6g}" for k, v in facts.items()))
        data |= facts
    lines += _rows(values)
    return CommandResult(tuple(lines), data)


def _in_dram(context: Context, name: str, in_memory: bool) -> tuple[Tensor, npt.NDArray[Any]]:
    """Return a tensor as its layer wrote it, or as memory is now."""
    debugger = context.debugger
    found = find_tensor(debugger, name)
    for one in debugger.layers:
        is_done = debugger.layer_ends.get(one.index, 1 << 62) <= debugger.execution.position
        if (
            one.output == found
            and is_done
            and not in_memory
            and one.index in debugger.layer_outputs
        ):
            return found, debugger.layer_outputs[one.index]
    return found, read_values(debugger, found)


def _place(address: int) -> str:
    """Return the address as text; constants of the LIR have none, their layout differs."""
    return f" at {address:#x}" if address else ""


def _element(found: Tensor, values: npt.NDArray[Any], at: tuple[int, ...]) -> CommandResult:
    flat = ravel_index(at, found.shape)
    value = values.reshape(-1)[flat].item()
    text = f"{list(at)} = {value}"
    data: dict[str, Any] = {"at": list(at), "value": to_json_value(value)}
    if found.scale is not None:
        real = found.scale * (value - (found.offset or 0))
        text += f", stands for {real:.6g}"
        data["real"] = real
    if found.address:
        data["address"] = found.address + flat * values.itemsize
        text += f", at {data['address']:#x}"
    return make_result(text, **data)


def _listed(values: npt.NDArray[Any]) -> list[Any]:
    return [to_json_value(value) for value in values.tolist()]


def _rows(values: npt.NDArray[Any]) -> list[str]:
    """Return the first rows of a tensor, along its last dimension."""
    width = values.shape[-1] if values.ndim else 1
    rows = values.reshape(-1, width) if values.size else values.reshape(0, 1)
    shown = rows[: max(1, MAX_SHOWN // max(width, 1))]
    lines = []
    for index, row in enumerate(shown):
        at = np.unravel_index(index, values.shape[:-1]) if values.ndim > 1 else ()
        texts = [f"{v:.5g}" if values.dtype.kind == "f" else str(v) for v in row[:MAX_SHOWN]]
        lines.append(f"  {[int(i) for i in at]} {' '.join(texts)}")
    if len(shown) < len(rows):
        lines.append(f"  ... {len(rows) - len(shown)} more rows; name coordinates for an element")
    return lines


def show_saturation(context: Context, arguments: Arguments) -> CommandResult:
    """Show saturated and clipped values."""
    debugger = context.debugger
    chosen = [_layer(context, arguments)] if arguments else debugger.layers
    arguments.expect_end()
    rows: list[list[object]] = []
    for one in chosen:
        for found in count_saturation(debugger, one):
            channels = ", ".join(f"{c}: {n}" for c, n in list(found.channels)[:6])
            more = " ..." if len(found.channels) > 6 else ""
            rows.append(
                [
                    one.name,
                    found.stage,
                    found.side,
                    found.count,
                    found.worst,
                    list(found.first),
                    channels + more,
                ]
            )
    names = ("layer", "stage", "side", "count", "worst", "first", "channels")
    shown = [[context.get_display_name(str(name)), *facts] for name, *facts in rows]
    lines = format_table(names, shown) if rows else ("nothing has saturated so far",)
    return CommandResult(
        lines, {"saturation": [dict(zip(names, row, strict=True)) for row in rows]}
    )


def list_cores(context: Context, arguments: Arguments) -> CommandResult:
    """List all cores."""
    arguments.expect_end()
    columns: tuple[Column, ...] = (
        "core",
        "status",
        "clock",
        ("pc", lambda one: f"{one.pc:#x}"),
        ("layer", lambda one: context.get_display_name(one.layer)),
        "retired",
        ("next", lambda one: one.instruction),
    )
    return list_records("cores", list_core_states(context.debugger), columns)


def show_registers(context: Context, arguments: Arguments) -> CommandResult:
    """Show the registers of a core."""
    core = arguments.take_integer("a core", context.debugger.find_next_core() or 0)
    arguments.expect_end()
    found = read_registers(context.debugger, core)
    cells = [f"{name:<9} {value:08x}" for name, value in found.items()]
    lines = ["   ".join(cells[i : i + 4]) for i in range(0, len(cells), 4)]
    return CommandResult((f"core {core}", *lines), {"core": core, "registers": dict(found)})


def show_memory(context: Context, arguments: Arguments) -> CommandResult:
    """Show bytes of memory."""
    core = arguments.take_integer_option("core")
    address = find_address(context.debugger, arguments.take_word("an address"))
    number = arguments.take_integer("bytes", 64)
    arguments.expect_end()
    core = context.debugger.find_next_core() or 0 if core is None else core
    data = read_memory(context.debugger, address, number, core)
    lines = [f"{address + i:#010x}  {data[i : i + 16].hex(' ')}" for i in range(0, len(data), 16)]
    return CommandResult(tuple(lines), {"address": address, "core": core, "bytes": list(data)})


def show_code(context: Context, arguments: Arguments) -> CommandResult:
    """Show instructions."""
    core = arguments.take_integer_option("core")
    core = context.debugger.find_next_core() or 0 if core is None else core
    address = (
        find_address(context.debugger, arguments.take_word("an address")) if arguments else None
    )
    arguments.expect_end()
    lines = []
    found = disassemble(context.debugger, core, address)
    for one in found:
        if one.symbol:
            lines.append(f"{one.symbol}:")
        lines.append(f"{'>' if one.is_next else ' '} {one.address:#010x}  {one.text}")
    if not lines:
        lines.append(f"there is no code; core {core} has not started yet, or name an address")
    return CommandResult(tuple(lines), {"core": core, "code": [attrs.asdict(one) for one in found]})


def show_source(context: Context, arguments: Arguments) -> CommandResult:
    """Show the LIR text around a layer."""
    chosen = _layer(context, arguments)
    arguments.expect_end()
    numbers = context.find_instruction_numbers(chosen)
    module = context.module()
    lines = []
    for instruction in module.instructions:
        if min(numbers) - 4 <= instruction.number <= max(numbers) + 4:
            mark = ">" if instruction.number in numbers else " "
            lines.append(
                f"{mark} {instruction.number:4d} {context.format_instruction(instruction)}"
            )
    return CommandResult(tuple(lines), {"layer": chosen.index, "numbers": sorted(numbers)})


COMMANDS = (
    Command("where", "where the run is", show_location, ("pc", "status")),
    Command("layers", "every layer: state, cycles, saturation", list_layers, ("ls",)),
    Command("layer [LAYER]", "all about a layer", show_layer, ("l",), ("<layer>",)),
    Command(
        "tensor [TENSOR|LAYER] [I J ...] [memory]",
        "values of a tensor, or one element",
        show_tensor,
        ("t", "print", "p"),
        ("<tensor>", "memory"),
        "Layers may share memory: an output is shown as its layer left it, with memory as the"
        " bytes are now. Weights and biases are shown as the LIR has them.",
    ),
    Command(
        "saturation [LAYER]",
        "saturated and clipped values, by stage and side",
        show_saturation,
        ("sat",),
        ("<layer>",),
    ),
    Command("source [LAYER]", "the LIR around a layer", show_source, ("list",), ("<layer>",)),
    Command("cores", "every core: status, cycle, next instruction", list_cores),
    Command("registers [CORE]", "registers of a core", show_registers, ("regs",)),
    Command(
        "memory ADDRESS [BYTES] [core C]",
        "bytes as a core sees them",
        show_memory,
        ("x",),
        ("core",),
    ),
    Command(
        "code [ADDRESS] [core C]",
        "the program around a core's next instruction",
        show_code,
        ("disassemble",),
        ("core",),
    ),
)
