"""Operators that are made of others: a model's own functions, and those that ONNX defines so."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from typing import Any

from nmpsim.frontends.onnx.model import MAX_NODES

_OWN = "inline_schema_functions"
Key = tuple[str, str]
"""Domain and name of an operator; ONNX's own domain is empty."""


def with_bodies(model: Any, known: Collection[str]) -> Any:
    """The model, with what its other operators are made of in place of them.

    It is left as it is where that leads to operators that are not known either, or to a graph
    that is too large. Old packages ``onnx`` (to 1.18 at least) know a model's own functions only.

    Args:
        model: an ``onnx.ModelProto``.
        known: operators that stay, after their domain where that is not ONNX's own.
    """
    held = {_key(name) for name in known}
    if not _unknown(model.graph, held) or not _is_small(model):
        return model
    made = model
    try:
        import onnx
        from onnx import inliner

        inline = inliner.inline_selected_functions
        more = {_OWN: True} if _OWN in inspect.signature(inline).parameters else {}
        for _ in range(MAX_DEPTH):
            unknown = _unknown(made.graph, held)
            if not unknown:
                return made
            made = _with_defaults(onnx, made, unknown)
            made = inline(made, sorted(unknown), **more)
            if unknown <= _unknown(made.graph, held):
                break
    except Exception:  # whatever onnx raises for what is no function; it is refused later
        return model
    return model


def _with_defaults(onnx: Any, model: Any, unknown: Collection[Key]) -> Any:
    """The model with what the package does not look for itself: values of attributes that nodes
    leave out, and types of constants."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    typed = {one.name for one in (*made.graph.input, *made.graph.value_info)}
    for one in made.graph.initializer:  # whose types it looks for among these only
        if one.name not in typed:
            info = onnx.helper.make_tensor_value_info(one.name, one.data_type, list(one.dims))
            made.graph.value_info.append(info)
    versions = {"" if o.domain == "ai.onnx" else o.domain: o.version for o in made.opset_import}
    own = {(one.domain, one.name): list(one.attribute_proto) for one in made.functions}
    for node in made.graph.node:
        key = _key_of(node)
        if key not in unknown:
            continue
        defaults = own.get(key)
        if defaults is None:
            attributes = onnx.defs.get_schema(key[1], versions[key[0]], key[0]).attributes
            defaults = [one.default_value for one in attributes.values()]
        given = {one.name for one in node.attribute}
        node.attribute.extend(one for one in defaults if one.name and one.name not in given)
    return made


def _key(name: str) -> Key:
    domain, _, op = name.rpartition(".")
    return domain, op


def _key_of(node: Any) -> Key:
    return "" if node.domain == "ai.onnx" else node.domain, node.op_type


def _unknown(graph: Any, known: Collection[Key]) -> set[Key]:
    return {_key_of(node) for node in graph.node} - set(known)


def _is_small(model: Any) -> bool:
    """Whether the model's own functions end, and make no more nodes than a graph may have."""
    bodies = {(one.domain, one.name): one for one in model.functions}
    sizes: dict[Key, int] = {}
    for key in bodies:
        if _size(key, bodies, sizes, ()) > MAX_NODES:
            return False
    return sum(sizes.get(_key_of(node), 1) for node in model.graph.node) <= MAX_NODES


def _size(key: Key, bodies: Mapping[Key, Any], sizes: dict[Key, int], path: tuple[Key, ...]) -> int:
    """Nodes that a function becomes; more than a graph may have if it calls itself."""
    if key in path or len(path) > MAX_DEPTH:
        return MAX_NODES + 1
    if key not in bodies:
        return 1
    if key not in sizes:
        inner = (_size(_key_of(node), bodies, sizes, (*path, key)) for node in bodies[key].node)
        sizes[key] = min(sum(inner), MAX_NODES + 1)
    return sizes[key]


MAX_DEPTH = 64
"""Of functions that call functions."""
