"""Translation of PyTorch operations that move elements: views, permutations, slices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nmpsim.frontends.imported_model import require
from nmpsim.frontends.torch.graph_builder import TorchGraphBuilder, Translation


def _translate_view(builder: TorchGraphBuilder) -> None:
    shape = builder.result.shape
    builder.add_node("Reshape", [builder.get_first_tensor()], shape=shape, allowzero=1)


def translate_identity(builder: TorchGraphBuilder) -> None:
    """Translate an operation that only changes the memory layout in PyTorch."""
    source, result = builder.get_first_tensor(), builder.result
    require(source.dtype == result.dtype, f"{source.dtype} to {result.dtype}", "equal types")
    builder.add_node("Identity", [source])


def _translate_permutation(
    builder: TorchGraphBuilder, dims: Sequence[int] | None = None, dim0: int = 0, dim1: int = 1
) -> None:
    """Translate a permutation; in a quantized model it is delayed until it is needed."""
    source = builder.get_first_tensor()
    rank = len(source.shape)
    order = list(range(rank))
    if dims is not None:
        order = [int(axis) % rank for axis in dims]
    elif rank >= 2:
        order[dim0 % rank], order[dim1 % rank] = order[dim1 % rank], order[dim0 % rank]
    if builder.is_float:
        builder.add_node("Transpose", [source], perm=tuple(order))
    else:
        builder.permute(source, tuple(order))


def _translate_slice(
    builder: TorchGraphBuilder, dim: int = 0, start: int = 0, end: Any = None, step: int = 1
) -> None:
    source = builder.get_first_tensor()
    axis = dim % len(source.shape)
    size, name = source.shape[axis], builder.get_name(source)
    if step != 1:
        require(builder.is_float, f"step {step} for quantized values", "step 1")
        end = size if end is None else min(end, size)
        numbers = (builder.add_integers([one]) for one in (start, end, axis, step))
        builder.add_node("Slice", [name, *numbers])
        return
    first = min(max(start + size if start < 0 else start, 0), size)
    end = first + builder.result.shape[axis]
    builder.add_node("Slice", [name], starts=(first,), ends=(end,), axes=(axis,))


def _translate_split(builder: TorchGraphBuilder, dim: int = 0) -> None:
    source = builder.get_first_tensor()
    axis = dim % len(source.shape)
    sizes = tuple(result.shape[axis] for result in builder.call.results)
    builder.add_node("Split", [source], *builder.get_output_names(), axis=axis, split=sizes)


def translate_pad(builder: TorchGraphBuilder, pad: Sequence[int], value: float = 0.0) -> None:
    """Translate padding with a constant, which must be zero in a quantized model."""
    source, result = builder.get_first_tensor(), builder.result
    rank = len(source.shape)
    before, after = [0] * rank, [0] * rank
    for index in range(len(pad) // 2):  # PyTorch's are pairs, from the last dimension on
        before[rank - 1 - index], after[rank - 1 - index] = map(int, pad[2 * index :][:2])
    if not builder.is_float:
        require(not value, f"padding of quantized values with {value:g}", "padding with 0")
        require(min(pad, default=0) >= 0, f"paddings {list(pad)}", "paddings of 0 or more")
    require(
        (source.scale, source.zero_point) == (result.scale, result.zero_point),
        f"a result with scale {result.scale} and zero point {result.zero_point}",
        f"scale {source.scale} and zero point {source.zero_point}, those of the input",
    )
    inputs = [builder.get_name(source)]
    if source.scale is not None:
        inputs += ["", builder.add_integers(source.zero_point)]
    builder.add_node("Pad", inputs, pads=(*before, *after), value=value)


MOVEMENTS: dict[str, Translation] = {
    "aten._reshape_alias": _translate_view,
    "aten._unsafe_view": _translate_view,
    "aten.alias": translate_identity,
    "aten.clone": translate_identity,
    "aten.contiguous": translate_identity,
    "aten.detach": translate_identity,
    "aten.permute": _translate_permutation,
    "aten.slice": _translate_slice,
    "aten.split": _translate_split,
    "aten.split_with_sizes": _translate_split,
    "aten.squeeze": _translate_view,
    "aten.t": _translate_permutation,
    "aten.transpose": _translate_permutation,
    "aten.unsqueeze": _translate_view,
    "aten.view": _translate_view,
}
"""Operations on tensors of any type."""
