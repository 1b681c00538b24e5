"""What the types of an instruction's operands have to do with one another, opcode by opcode.

``RULES`` says which rules an opcode has, in the order in which they are asked; a rule may rely
on the rules before it.
"""

from __future__ import annotations

from nmpsim.lir.constraints import (
    Rule,
    addend_elem,
    bias_elem,
    elem,
    pointwise,
    rank,
    same_elem,
    same_scale,
    same_shape,
    same_type,
    weights_elem,
)
from nmpsim.lir.host_rules import HOST_RULES
from nmpsim.lir.nodes import QUANTIZED_ELEMS
from nmpsim.lir.shapes import (
    activation_arguments,
    at_least_two_dimensions,
    average_dimensions,
    average_shape,
    convolution_shape,
    extracted,
    filter_shape,
    groups,
    inserted,
    limits_in_order,
    mapping_shape,
    mean_of_something,
    permutation,
    pool_shape,
    product,
    reduced_shape,
    resized,
    slice_shape,
    vectors,
    viewed,
)

_REAL_ELEMS = frozenset({"float", "float16", "bfloat16", "float64"})
_INDEX_ELEMS = frozenset({"index32", "index64"})
_FLOAT, _INDEX32, _BOOL = (frozenset({kind}) for kind in ("float", "index32", "bool"))

_CONVOLUTION_CORE = (
    rank(4, "Dest", "Src", "Filter"),
    same_elem("Src", "Dest"),
    weights_elem("Src", "Filter"),
    bias_elem("Src", "Bias"),
    groups,
    filter_shape,
    vectors("Filter", 0, "Bias"),
    convolution_shape,
    activation_arguments,
)
_PRODUCT = (
    rank(2, "Dest", "Src", "Weights"),
    same_elem("Src", "Dest"),
    weights_elem("Src", "Weights"),
)
_COMPARISON = (
    elem(_BOOL, "Dest"),
    same_elem("LHS", "RHS"),
    same_shape("Dest", "LHS", "RHS"),
)
_POOL = (rank(4, "Dest", "Src"), same_elem("Src", "Dest"), pool_shape)
_ELEMENTWISE = pointwise("Dest", "LHS", "RHS")
_MOVE = (same_elem("Src", "Dest"), same_scale("Src", "Dest"))

RULES: dict[str, tuple[Rule, ...]] = {
    "tensorview": (same_elem("Src", "Ty"), same_scale("Src", "Ty"), viewed),
    "convolution": _CONVOLUTION_CORE,
    "channelwisequantizedconvolution": (
        *_CONVOLUTION_CORE,
        elem(QUANTIZED_ELEMS, "Src"),
        elem(_FLOAT, "FilterScales", "BiasScales"),
        elem(_INDEX32, "FilterOffsets", "BiasOffsets"),
        vectors("Filter", 0, "FilterScales", "FilterOffsets", "BiasScales", "BiasOffsets"),
    ),
    "fullyconnected": (
        *_PRODUCT,
        bias_elem("Src", "Bias"),
        product("Src", "Weights"),
        vectors("Dest", 1, "Bias"),
    ),
    "rowwisequantizedfullyconnected": (
        *_PRODUCT,
        elem(QUANTIZED_ELEMS, "Src"),
        bias_elem("Src", "Bias"),
        elem(_FLOAT, "Scales"),
        elem(_INDEX32, "Offsets"),
        product("Src", "Weights", rows_are_outputs=True),
        vectors("Dest", 1, "Bias", "Scales", "Offsets"),
    ),
    "matmul": (
        rank(2, "Dest", "LHS", "RHS"),
        same_elem("LHS", "RHS", "Dest"),
        product("LHS", "RHS"),
    ),
    "batchedadd": (*pointwise("Batch", "Dest"), addend_elem("Batch", "Slice"), slice_shape),
    "maxpool": (*_POOL, same_scale("Src", "Dest")),
    "maxpoolwithargmax": (
        *_POOL,
        same_scale("Src", "Dest"),
        elem(_INDEX_ELEMS, "Argmax"),
        same_shape("Dest", "Argmax"),
    ),
    "avgpool": (average_dimensions, same_elem("Src", "Dest"), average_shape, mean_of_something),
    "relu": pointwise("Src", "Dest"),
    "clip": (*pointwise("Src", "Dest"), limits_in_order),
    "leakyrelu": pointwise("Src", "Dest"),
    "cpumaxsplat": same_type("Src", "Dest"),
    "elementadd": _ELEMENTWISE,
    "elementsub": _ELEMENTWISE,
    "elementmul": _ELEMENTWISE,
    "elementdiv": _ELEMENTWISE,
    "elementmax": _ELEMENTWISE,
    "elementmin": _ELEMENTWISE,
    "elementselect": (
        elem(_BOOL, "Cond"),
        same_shape("Dest", "Cond"),
        *_ELEMENTWISE,
    ),
    "elementcmplte": _COMPARISON,
    "elementcmplt": _COMPARISON,
    "elementcmpeq": _COMPARISON,
    "elementcmpneq": _COMPARISON,
    "quantize": (
        elem(_REAL_ELEMS, "Src"),
        elem(QUANTIZED_ELEMS, "Dest"),
        same_shape("Src", "Dest"),
    ),
    "dequantize": (
        elem(QUANTIZED_ELEMS, "Src"),
        elem(_REAL_ELEMS, "Dest"),
        same_shape("Src", "Dest"),
    ),
    # Wider than Glow's, whose Src and Dest have one element kind: layers of two widths may meet.
    "rescalequantized": (elem(QUANTIZED_ELEMS, "Src", "Dest"), same_shape("Src", "Dest")),
    "copy": same_type("Src", "Dest"),
    "transpose": (*_MOVE, permutation),
    "inserttensor": (*_MOVE, inserted),
    "extracttensor": (*_MOVE, extracted),
    "softmax": (*pointwise("Src", "Dest"), at_least_two_dimensions),
    "localresponsenormalization": (
        elem(_REAL_ELEMS, "Src"),
        rank(4, "Src"),
        *pointwise("Src", "Dest", "Scale"),
    ),
    "sigmoid": pointwise("Src", "Dest"),
    "tanh": pointwise("Src", "Dest"),
    "intlookuptable": (
        elem(frozenset({"i8", "i16"}), "Src"),
        same_shape("Src", "Dest"),
        same_elem("Dest", "Mapping"),
        mapping_shape,
    ),
    "batchedreduceadd": (same_elem("Batch", "Dest"), reduced_shape),
    "resizenearest": (*_MOVE, resized),
    **HOST_RULES,
}
"""Opcode -> its rules; an opcode without any has nothing to relate."""
