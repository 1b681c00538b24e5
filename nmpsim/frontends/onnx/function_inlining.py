"""Inlining of ONNX functions, both the model's own and those in the ONNX standard."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from typing import Any

from nmpsim.frontends.onnx.model import MAX_NODES, get_operator_domain

MAX_DEPTH = 64
"""Limit for functions that call functions."""
_INLINE_ONNX_FUNCTIONS = "inline_schema_functions"
"""Parameter of newer packages ``onnx``; to 1.18 at least they inline a model's own only."""
OperatorId = tuple[str, str]
"""Domain and name of an operator; ONNX's own domain is empty."""


def inline_functions(model: Any, supported: Collection[str]) -> Any:
    """Replace unsupported operators by the nodes of the functions that define them.

    Parameters
    ----------
    model : onnx.ModelProto
        The model; it is not changed.
    supported : collection of str
        Operators that are kept, with their domain unless that is ONNX's own.

    Returns
    -------
    onnx.ModelProto
        The new model, or the given one if that leads to operators that are not supported either, or
        to a graph that is too large.
    """
    kept = {(domain, op) for domain, _, op in (name.rpartition(".") for name in supported)}
    if not _unsupported(model, kept) or not _is_small(model):
        return model
    inlined = model
    try:
        import onnx
        from onnx import inliner

        inline = inliner.inline_selected_functions
        has_option = _INLINE_ONNX_FUNCTIONS in inspect.signature(inline).parameters
        options = {_INLINE_ONNX_FUNCTIONS: True} if has_option else {}
        for _ in range(MAX_DEPTH):
            unsupported = _unsupported(inlined, kept)
            if not unsupported:
                return inlined
            inlined = _with_defaults(onnx, inlined, unsupported)
            inlined = inline(inlined, sorted(unsupported), **options)
            if unsupported <= _unsupported(inlined, kept):
                break
    except Exception:  # whatever onnx raises for an operator that is no function; refused later
        return model
    return model


def _with_defaults(onnx: Any, model: Any, unsupported: Collection[OperatorId]) -> Any:
    """Return the model with default attribute values and constant types, which onnx needs."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    typed = {one.name for one in (*copy.graph.input, *copy.graph.value_info)}
    for one in copy.graph.initializer:
        if one.name not in typed:
            info = onnx.helper.make_tensor_value_info(one.name, one.data_type, list(one.dims))
            copy.graph.value_info.append(info)
    versions = {get_operator_domain(one): one.version for one in copy.opset_import}
    own = {(one.domain, one.name): list(one.attribute_proto) for one in copy.functions}
    for node in copy.graph.node:
        domain, op = key = _operator_id(node)
        if key not in unsupported:
            continue
        defaults = own.get(key)
        if defaults is None:
            attributes = onnx.defs.get_schema(op, versions[domain], domain).attributes
            defaults = [one.default_value for one in attributes.values()]
        given = {one.name for one in node.attribute}
        node.attribute.extend(one for one in defaults if one.name and one.name not in given)
    return copy


def _operator_id(node: Any) -> OperatorId:
    return get_operator_domain(node), node.op_type


def _unsupported(model: Any, kept: Collection[OperatorId]) -> set[OperatorId]:
    return set(map(_operator_id, model.graph.node)) - set(kept)


def _is_small(model: Any) -> bool:
    """Return whether the model's functions are not recursive, and make no more than MAX_NODES."""
    functions = {(one.domain, one.name): one for one in model.functions}
    sizes: dict[OperatorId, int] = {}
    if any(_size(key, functions, sizes, ()) > MAX_NODES for key in functions):
        return False
    return sum(sizes.get(_operator_id(node), 1) for node in model.graph.node) <= MAX_NODES


def _size(
    key: OperatorId,
    functions: Mapping[OperatorId, Any],
    sizes: dict[OperatorId, int],
    callers: tuple[OperatorId, ...],
) -> int:
    """Return how many nodes a function becomes, more than MAX_NODES if it is recursive."""
    if key in callers or len(callers) > MAX_DEPTH:
        return MAX_NODES + 1
    if key not in functions:
        return 1
    if key not in sizes:
        calls = map(_operator_id, functions[key].node)
        inner = (_size(one, functions, sizes, (*callers, key)) for one in calls)
        sizes[key] = min(sum(inner), MAX_NODES + 1)
    return sizes[key]
