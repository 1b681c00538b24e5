"""Translation of PyTorch operations that move elements: views, permutations, slices."""

from __future__ import annotations

from nmpsim.frontends.imported_model import require
from nmpsim.frontends.torch.graph_builder import TorchGraphBuilder, Translation


def _translate_view(builder: TorchGraphBuilder) -> None:
    shape = builder.result.shape
    builder.add_node("Reshape", [builder.get_source()], shape=shape, allowzero=1)


def translate_identity(builder: TorchGraphBuilder) -> None:
    """Translate an operation that only changes the memory layout in PyTorch."""
    source, result = builder.get_source(), builder.result
    require(source.dtype == result.dtype, f"{source.dtype} to {result.dtype}")
    builder.add_node("Identity", [source])


def _translate_permutation(builder: TorchGraphBuilder) -> None:
    """Translate a permutation; in a quantized model it is delayed until it is needed."""
    source = builder.get_source()
    order = _permutation(builder, len(source.shape))
    if builder.is_float:
        builder.add_node("Transpose", [source], perm=order)
    else:
        builder.permute(source, order)


def _permutation(builder: TorchGraphBuilder, rank: int) -> tuple[int, ...]:
    given, order = builder.arguments, list(range(rank))
    if "dims" in given:
        return tuple(int(axis) % rank for axis in given["dims"])
    if rank >= 2:
        first, second = (int(given.get(n, d)) % rank for n, d in (("dim0", 0), ("dim1", 1)))
        order[first], order[second] = order[second], order[first]
    return tuple(order)


def _translate_slice(builder: TorchGraphBuilder) -> None:
    given, source = builder.arguments, builder.get_source()
    axis = int(given.get("dim", 0)) % len(source.shape)
    size, step = source.shape[axis], given.get("step", 1)
    start = int(given.get("start") or 0)
    first = min(max(start + size if start < 0 else start, 0), size)
    name = builder.get_name(source)
    if step != 1:
        require(builder.is_float, f"steps of {step}")
        end = size if given["end"] is None else min(given["end"], size)
        builder.add_node(
            "Slice", [name, *(builder.add_integers([n]) for n in (start, end, axis, step))]
        )
        return
    end = first + builder.result.shape[axis]
    builder.add_node("Slice", [name], starts=(first,), ends=(end,), axes=(axis,))


def _translate_split(builder: TorchGraphBuilder) -> None:
    source, call = builder.get_source(), builder.call
    axis = int(call.arguments.get("dim", 0)) % len(source.shape)
    sizes = tuple(result.shape[axis] for result in call.results)
    builder.add_node("Split", [source], *builder.outputs(), axis=axis, split=sizes)


def translate_pad(builder: TorchGraphBuilder) -> None:
    """Translate padding with a constant, which must be zero in a quantized model."""
    source, result, given = builder.get_source(), builder.result, builder.arguments
    pads, value, rank = given["pad"], float(given.get("value") or 0), len(source.shape)
    before, after = [0] * rank, [0] * rank
    for index in range(len(pads) // 2):  # PyTorch's are pairs, from the last dimension on
        before[rank - 1 - index], after[rank - 1 - index] = map(int, pads[2 * index :][:2])
    require(
        builder.is_float or (not value and min(pads, default=0) >= 0),
        f"paddings {list(pads)} with {value:g}",
    )
    require(
        (source.scale, source.zero_point) == (result.scale, result.zero_point),
        "input and result of different scales or zero points",
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
