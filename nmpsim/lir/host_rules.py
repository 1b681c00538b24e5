"""Rules on the types of operands, for operations that only the host does."""

from __future__ import annotations

from nmpsim.kernels.hostops.formulas import ELEMENTWISE, Elementwise
from nmpsim.lir.constraints import (
    Rule,
    bias_elem,
    elem,
    pointwise,
    rank,
    same_elem,
    same_scale,
    same_shape,
    same_type,
)
from nmpsim.lir.host_shapes import (
    batched_product,
    blocks,
    boundaries_in_order,
    channel_parameters,
    distinct_axes,
    extreme_shape,
    gathered,
    gathered_elements,
    gathered_places,
    gathered_ranges,
    k_largest,
    last_dimensions,
    one_hot,
    only_pixels,
    places_of_truth,
    scattered,
    shared_out,
    suppressed,
    transposed_filter,
    transposed_windows,
    volume_filter,
    within_rank,
)
from nmpsim.lir.shapes import (
    at_least_two_dimensions,
    reduced_shape,
    resized,
    volume_convolution_shape,
)

_ELEMS = {
    "float32": "float",
    "int8": "i8",
    "int16": "i16",
    "int32": "index32",
    "int64": "index64",
    "bool": "bool",
}
"""dtype of a formula's operands -> element kind."""
_INDEX = frozenset({"index32", "index64"})
_NARROW = frozenset({"i8", "i16"})
_FLOAT, _BOOL, _INDEX32 = (frozenset({kind}) for kind in ("float", "bool", "index32"))
_REAL = _FLOAT | _NARROW
_COMPUTED = _FLOAT | _INDEX
_PLAIN = _COMPUTED | _BOOL | {"float16"}
_EXTREME = (
    elem(_REAL, "Src"),
    elem(_INDEX, "Dest"),
    within_rank("Axis", "Src"),
    extreme_shape,
)
_REDUCTION = (
    elem(_REAL | _INDEX, "Batch"),
    same_elem("Batch", "Dest"),
    same_scale("Batch", "Dest"),
    distinct_axes,
)


def _looked_up(axis: str, *shapes: Rule) -> tuple[Rule, ...]:
    """Data moved as it is to Dest, at indices along a dimension."""
    return (
        elem(_INDEX, "Indices"),
        same_elem("Data", "Dest"),
        same_scale("Data", "Dest"),
        within_rank(axis, "Data"),
        *shapes,
    )


def _by_formula(row: Elementwise) -> tuple[Rule, ...]:
    first, *others = row.sources
    kinds = frozenset(_ELEMS[name] for name in row.kinds)
    dest = elem(_BOOL, "Dest") if row.to_bool else same_elem(first, "Dest")
    return (
        elem(kinds, first),
        same_elem(first, *others),
        dest,
        same_shape(first, *others, "Dest"),
    )


HOST_RULES: dict[str, tuple[Rule, ...]] = {
    **{row.opcode: _by_formula(row) for row in ELEMENTWISE},
    "topk": (
        elem(_REAL, "Input"),
        elem(_INDEX, "Indices"),
        same_elem("Input", "Values"),
        same_scale("Input", "Values"),
        k_largest,
    ),
    "argmax": _EXTREME,
    "argmin": _EXTREME,
    "gather": _looked_up("BatchDims", gathered),
    "gathernd": _looked_up("BatchDims", gathered_places),
    "gatherelements": _looked_up("Dim", gathered_elements),
    "gatherranges": (
        elem(_INDEX, "Ranges"),
        same_elem("Ranges", "Lengths"),
        same_elem("Data", "Output"),
        same_scale("Data", "Output"),
        rank(1, "Data", "Output"),
        gathered_ranges,
    ),
    "scatterdata": (
        elem(_REAL | _INDEX, "Data"),
        elem(_INDEX, "Indices"),
        same_elem("Data", "Slices"),
        scattered,
    ),
    "nonzero": (elem(_BOOL, "Cond"), elem(_INDEX, "Dest"), places_of_truth),
    "bucketize": (
        elem(_FLOAT, "Src"),
        elem(_INDEX, "Dest"),
        same_shape("Src", "Dest"),
        boundaries_in_order,
    ),
    "batchonehot": (
        elem(_REAL | _INDEX, "Data"),
        elem(_INDEX, "Lengths"),
        same_elem("Data", "Values", "Dest"),
        rank(2, "Data", "Dest"),
        rank(1, "Lengths", "Values"),
        one_hot,
    ),
    "nonmaxsuppression": (
        elem(_FLOAT, "Boxes", "Scores"),
        elem(_INDEX, "Indices"),
        same_elem("Indices", "NumberOfSelectedIndices"),
        suppressed,
    ),
    "batchedreducemin": _REDUCTION,
    "batchedreducemax": _REDUCTION,
    "batchedreduceprod": (
        elem(_COMPUTED, "Batch"),
        same_elem("Batch", "Dest"),
        within_rank("Axis", "Batch"),
        reduced_shape,
    ),
    "cumsum": (
        elem(_COMPUTED, "Input"),
        *same_type("Input", "Dest"),
        within_rank("Dim", "Input", beyond=1),
    ),
    "flip": (*same_type("Src", "Dest"), within_rank("Axis", "Src")),
    "spacetodepth": (
        same_elem("Src", "Dest"),
        same_scale("Src", "Dest"),
        rank(4, "Src", "Dest"),
        blocks,
    ),
    "convertto": (elem(_PLAIN, "Input", "Result"), same_shape("Input", "Result")),
    "resizebilinear": (
        elem(_REAL | _INDEX, "Src"),
        same_elem("Src", "Dest"),
        same_scale("Src", "Dest"),
        rank(4, "Src", "Dest"),
        only_pixels,
        resized,
    ),
    "batchmatmul": (
        elem(_FLOAT, "LHS"),
        same_elem("LHS", "RHS", "Dest"),
        rank(3, "LHS", "RHS", "Dest"),
        batched_product,
    ),
    "logsoftmax": (elem(_FLOAT, "Src"), *pointwise("Src", "Dest"), at_least_two_dimensions),
    "batchnormalization": (
        elem(frozenset({"float", "i8"}), "Src"),
        elem(_FLOAT, "Scale", "Bias", "Mean", "Var"),
        *pointwise("Src", "Dest"),
        channel_parameters,
    ),
    "layernormalization": (
        elem(_FLOAT, "Src", "Scale"),
        *pointwise("Src", "Dest"),
        *pointwise("Scale", "Bias"),
        last_dimensions,
    ),
    "adaptiveavgpool": (
        elem(frozenset({"float", "i8"}), "Src"),
        same_elem("Src", "Dest"),
        rank(4, "Src", "Dest"),
        shared_out,
    ),
    "convolution3d": (
        elem(_REAL, "Src"),
        rank(5, "Src", "Dest", "Filter"),
        same_elem("Src", "Dest", "Filter"),
        bias_elem("Src", "Bias"),
        volume_filter,
        volume_convolution_shape,
    ),
    "convtranspose": (
        elem(_FLOAT, "Src"),
        rank(4, "Src", "Dest", "Filter"),
        same_elem("Src", "Dest", "Filter", "Bias"),
        transposed_filter,
        transposed_windows,
    ),
}
"""Opcode -> its rules, as in :mod:`nmpsim.lir.rules`."""
