"""Memory that a run will allocate, computed from bundle and device before it allocates anything.

The arithmetic is on unbounded integers, so that no number of a file can overflow it. Memory that is
the same for all bundles (Python, compiled kernels, a recording of at most
:data:`nmpsim.core.compiled.recording.MAX_ITEMS` instructions) is covered by the margin of
:func:`nmpsim.host_memory.get_default_memory_limit`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from nmpsim.bundle.metadata import HostOperand, ProgramStep, Tensor
from nmpsim.bundle.read import Bundle
from nmpsim.config import DeviceConfig
from nmpsim.core.counters import count_channels
from nmpsim.core.state import BARRIER, CONSOLE_BYTES, CORE, LAYER, SCRATCHPAD_SLACK, STAGES
from nmpsim.diagnostics import Place, UserError, fail
from nmpsim.host_memory import PlannedAllocation, check_memory
from nmpsim.isa.words import CHANNEL_BYTES
from nmpsim.kernels.workspace_size import LANES, get_workspace_size
from nmpsim.lir.instruction_check import find_instruction_problem
from nmpsim.lir.nodes import ELEM_DTYPES, Quantization, TensorType

STEP_BYTES = 64
"""Maximum bytes of a host operation for each element of its operands: sums, factors and results of
64 bits."""
INPUT_BYTES = 32
"""Maximum bytes for each element of an input, which may have to be quantized."""
OUTPUT_BYTES = 16
"""Maximum bytes for each element of an output: its values, and as real numbers."""
KEPT_OF_A_BYTE, KEPT_OF_A_BLOCK = 4.5, 1024
"""Maximum bytes that kernels keep for each byte of weights, and for each block of them."""
_CHANNEL_BYTES = STAGES * 2 * 8
_PROOF_OF_A_BYTE = 36
"""Maximum bytes of a proof of layer kernels for each byte of the writable segments: several arrays
of 32 bits for each byte that a layer reads, up to four times as many with padding, or writes.
Without padding, 10 to 18 bytes were measured."""
MAX_PROOF_BYTES = 1 << 28
"""Memory above which no proof is made: it would take more than the runs themselves."""


def check_run_memory(
    bundle: Bundle,
    config: DeviceConfig,
    max_memory: int | None = None,
    *,
    threads: int = 1,
    save_layers: bool = False,
    whole_layers: bool = False,
) -> None:
    """Raise UserError (MEM001) if a run would allocate too much memory.

    Parameters
    ----------
    bundle, config
        The program and the device.
    max_memory : int, optional
        Limit in bytes; by default the free memory less a margin.
    threads : int
        Host threads that share the run.
    save_layers : bool
        Whether the outputs of all layers are kept.
    whole_layers : bool
        Whether a later run may use layer kernels.

    Raises
    ------
    UserError
        MEM001, which names the field that asks for most; BUN001 for a host step whose operands do
        not fit each other.
    """
    place = Place(str(bundle.path))
    parts = [*_device_parts(config, threads), *_bundle_parts(bundle, threads)]
    parts += _step_parts(bundle, place)
    metadata = bundle.metadata
    kinds = (("inputs", metadata.inputs, INPUT_BYTES), ("outputs", metadata.outputs, OUTPUT_BYTES))
    for name, tensors, each in kinds:
        parts += [
            PlannedAllocation(f"{name}[{n}]", math.prod(tensor.shape) * each)
            for n, tensor in enumerate(tensors)
        ]
    if save_layers:
        parts += _saved_parts(bundle)
    if whole_layers:
        parts += _whole_parts(bundle, config)
    check_memory("the run", parts, max_memory, place)


def check_device_memory(config: DeviceConfig, max_memory: int | None) -> None:
    """Raise UserError (MEM001) if the memories of an empty device exceed ``max_memory``."""
    check_memory("the device", _device_parts(config, 1), max_memory)


def check_saved_memory(bundle: Bundle, max_memory: int | None) -> None:
    """Raise UserError (MEM001) if the outputs of all layers do not fit into memory."""
    place = Place(str(bundle.path))
    check_memory("keeping the layers' outputs", _saved_parts(bundle), max_memory, place)


def _saved_parts(bundle: Bundle) -> list[PlannedAllocation]:
    return [
        PlannedAllocation(f"layers[{n}].output", count_tensor_bytes(layer.output))
        for n, layer in enumerate(bundle.metadata.layers)
    ]


def count_tensor_bytes(tensor: Tensor) -> int:
    """Return the number of bytes of a tensor."""
    return math.prod(tensor.shape) * ELEM_DTYPES[tensor.elem].itemsize


def _device_parts(config: DeviceConfig, threads: int) -> Iterator[PlannedAllocation]:
    """Return the cores' memory, with copies for the first replay and the contract check."""
    size, cores = config.scratchpad_bytes + SCRATCHPAD_SLACK, config.cores_count
    yield PlannedAllocation("device.cores_count", cores * CORE.itemsize)
    yield PlannedAllocation("consoles", CONSOLE_BYTES * 8)
    yield PlannedAllocation(f"device.scratchpad_bytes, in {cores} cores", 3 * cores * size)
    workspace = 8 * get_workspace_size(size // CHANNEL_BYTES)
    yield PlannedAllocation(f"device.scratchpad_bytes, in {threads} threads", threads * workspace)


def _bundle_parts(bundle: Bundle, threads: int) -> Iterator[PlannedAllocation]:
    """Return the bundle's memory, as often as the cores', and the counters of each thread."""
    layers = bundle.metadata.layers
    yield PlannedAllocation("the writable segments", 3 * bundle.rw_bytes)
    yield PlannedAllocation("layers", (1 + threads) * (len(layers) + 1) * LAYER.itemsize)
    for index, layer in enumerate(layers):
        channels = (1 + threads) * count_channels(layer) * _CHANNEL_BYTES
        yield PlannedAllocation(f"layers[{index}].output.shape", channels)
    barriers = [(layer.barrier, layer.index) for layer in layers if layer.barrier is not None]
    if barriers:
        last, index = max(barriers)
        yield PlannedAllocation(f"layers[{index}].barrier", (last + 1) * BARRIER.itemsize)


def has_memory_for_layer_kernels(
    bundle: Bundle, config: DeviceConfig, max_memory: int | None, threads: int
) -> bool:
    """Return whether memory suffices for a run with layer kernels.

    A proof that needs more than :data:`MAX_PROOF_BYTES` is never made.
    """
    if sum(part.nbytes for part in _proof_parts(bundle, config)) > MAX_PROOF_BYTES:
        return False
    try:
        check_run_memory(bundle, config, max_memory, threads=threads, whole_layers=True)
    except UserError:
        return False
    return True


def _proof_parts(bundle: Bundle, config: DeviceConfig) -> Iterator[PlannedAllocation]:
    """Return the memory of a proof (docs/decisions/0026-layer-kernels.md)."""
    size = config.scratchpad_bytes + SCRATCHPAD_SLACK  # flags of each core, origins of one
    yield PlannedAllocation("device.scratchpad_bytes, in a proof", (config.cores_count + 4) * size)
    yield PlannedAllocation("the writable segments, in a proof", _PROOF_OF_A_BYTE * bundle.rw_bytes)


def _whole_parts(bundle: Bundle, config: DeviceConfig) -> Iterator[PlannedAllocation]:
    """Return the memory of layer kernels: the proof, copies of the weights, tensors of chains."""
    yield from _proof_parts(bundle, config)
    for index, layer in enumerate(bundle.metadata.layers):
        if layer.in_scratchpads:
            output = f"layers[{index}].output, in host memory"
            yield PlannedAllocation(output, count_tensor_bytes(layer.output))
    blocks = sum(-(-count_channels(layer) // LANES) for layer in bundle.metadata.layers)
    yield PlannedAllocation(
        "the weights of whole layers", bound_packed_weight_bytes(bundle.image.size, blocks)
    )


def bound_packed_weight_bytes(nbytes: int, blocks: int) -> int:
    """Return an upper bound of the memory in bytes for a copy of weights and its packed form.

    They are a copy, and what kernels make of it, at most with AVX2
    (:mod:`nmpsim.kernels.packed_weights`).
    """
    return nbytes + math.ceil(KEPT_OF_A_BYTE * nbytes) + KEPT_OF_A_BLOCK * blocks


def _step_parts(bundle: Bundle, place: Place) -> Iterator[PlannedAllocation]:
    """Return the memory of host operations: the largest one, and what the report keeps of each."""
    largest = PlannedAllocation("steps", 0)
    for number, step in enumerate(bundle.metadata.steps):
        if step.kind != "host":
            continue
        problem = find_instruction_problem(step.opcode or "", _types(step), step.attributes)
        if problem is not None:
            raise fail(
                "BUN001",
                f"the bundle requires an unsupported host operation: {step.opcode}"[:200],
                place=place,
                found=f"{problem.message}: {problem.found}",
                expected=problem.expected,
                hint="Compile the program again.",
            )
        padded = _padded_elements(step)
        elements = sum(math.prod(one.tensor.shape) for one in step.operands)
        field = f"steps[{number}]" + (".attributes.Pads" if padded > elements else "")
        largest = max(
            largest,
            PlannedAllocation(field, STEP_BYTES * (elements + padded)),
            key=lambda part: part.nbytes,
        )
        yield PlannedAllocation(
            f"steps[{number}].operands", 8 * math.prod(step.operands[0].tensor.shape)
        )
    yield largest


def _padded_elements(step: ProgramStep) -> int:
    """Return the maximum number of input elements of a window including its padding."""
    pads: tuple[int, ...] = step.attributes.get("Pads", ())
    if not any(pads):
        return 0
    source = next(one.tensor.shape for one in step.operands if one.role == "in")
    return source[0] * math.prod(dim + sum(pads) for dim in source[1:-1]) * source[-1]


def _types(step: ProgramStep) -> list[tuple[str, TensorType]]:
    return [(f"@{one.role}", _type(one)) for one in step.operands]


def _type(operand: HostOperand) -> TensorType:
    tensor = operand.tensor
    if tensor.scale is None or tensor.offset is None:
        return TensorType(tensor.elem, tensor.shape)
    quant = Quantization(tensor.scale, tensor.offset, 0.0, 0.0)
    return TensorType(tensor.elem, tensor.shape, quant)
