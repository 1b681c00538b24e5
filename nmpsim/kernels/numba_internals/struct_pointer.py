"""Named tuples that are passed by address.

Numba passes a tuple member by member: for the machine, with some seven words for each array, that
would be more than a hundred words on the stack for every call.
"""

from __future__ import annotations

from typing import Any

import numba
from llvmlite import ir
from numba.core.imputils import impl_ret_borrowed
from numba.core.typing.templates import AttributeTemplate
from numba.extending import (
    infer_getattr,
    intrinsic,
    lower_getattr_generic,
    models,
    register_model,
)

_NEEDED = (AttributeTemplate.resolve,)


class StructPointerType(numba.types.Type):  # type: ignore[misc]  # Numba has no types
    """Numba type of a pointer to a named tuple, with access to the tuple's fields."""

    def __init__(self, target: numba.types.Type) -> None:
        self.target = target
        super().__init__(name=f"Reference({target})")


@register_model(StructPointerType)
class _ReferenceModel(models.PrimitiveModel):  # type: ignore[misc]  # Numba has no types
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, manager.lookup(kind.target).get_value_type().as_pointer())


@infer_getattr
class _ReferenceFields(AttributeTemplate):  # type: ignore[misc]  # Numba has no types
    key = StructPointerType

    def generic_resolve(self, kind: StructPointerType, name: str) -> Any:
        return kind.target[kind.target.fields.index(name)] if name in kind.target.fields else None


@lower_getattr_generic(StructPointerType)  # type: ignore[untyped-decorator]  # Numba has no types
def _load_field(
    context: object, builder: ir.IRBuilder, kind: StructPointerType, address: ir.Value, name: str
) -> Any:
    i = kind.target.fields.index(name)
    value = builder.load(builder.gep(address, [ir.Constant(ir.IntType(32), n) for n in (0, i)]))
    return impl_ret_borrowed(context, builder, kind.target[i], value)


def _type_of_reference(_: object, target: numba.types.Type) -> Any:
    def generate(_: object, builder: ir.IRBuilder, __: object, values: list[ir.Value]) -> Any:
        with builder.goto_entry_block():
            slot = builder.alloca(values[0].type)
        builder.store(values[0], slot)
        return slot

    return StructPointerType(target)(target), generate


def _itself(target: tuple[Any, ...]) -> tuple[Any, ...]:
    return target


struct_pointer: Any = _itself if numba.config.DISABLE_JIT else intrinsic(_type_of_reference)
"""``struct_pointer(named_tuple)`` returns its address, valid until the calling function returns."""
