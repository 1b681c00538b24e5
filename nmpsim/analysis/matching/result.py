"""Result of a matching: pairs of tensors, their values, and a description of what is missing."""

from __future__ import annotations

import attrs

from nmpsim.analysis.matching.layout import find_axis_order
from nmpsim.analysis.matching.tensors import StoredTensor, convert_unsigned
from nmpsim.arrays import Array
from nmpsim.lir.names import make_display_names

_MAX_NAMES = 8
"""Names of results that a text contains."""


@attrs.frozen
class TensorPair:
    """Pair of a run's tensor and the matching tensor of the reference."""

    tensor: StoredTensor
    reference: StoredTensor
    how: str
    """Evidence: map, name, spelling, ending, number, order or values."""
    is_out_of_order: bool = False
    """Whether the pair contradicts the order of the other pairs."""


@attrs.frozen
class TensorMatching:
    """Matching of a run with a reference: pairs in the run's order, and unmatched tensors."""

    pairs: tuple[TensorPair, ...]
    layout: str
    """Layout of the reference: same, nchw or nhwc; ``same`` if unknown."""
    unmatched: tuple[StoredTensor, ...]
    """Results of the run that are not in the reference."""
    unmatched_references: tuple[StoredTensor, ...]
    """Results of the reference that are not in the run."""
    moved: tuple[StoredTensor, ...] = ()
    """Results of the run that transpose or copy a result of a pair, whose reference they use."""
    is_layout_known: bool = True
    """Whether shapes, values or the caller determine the layout."""

    def read_expected(self, pair: TensorPair) -> Array | None:
        """Read a pair's reference values in the run's layout; return None if they are incomparable.

        Unsigned values are returned as the signed values that the run stores. None if the values
        are incomplete or have another shape.
        """
        values = pair.reference.load()
        axes = find_axis_order(pair.tensor.shape, values.shape, self.layout)
        if axes is None or not values.is_complete:
            return None
        array = values.array.reshape(values.shape)
        array = array.transpose(axes) if axes else array.reshape(pair.tensor.shape)
        return array if pair.tensor.dtype is None else convert_unsigned(array, pair.tensor.dtype)

    def describe_coverage(self, noun: str = "layers") -> str:
        """Describe how many results of the run are in the reference, and which are not."""
        matched = [pair.tensor for pair in self.pairs if pair.tensor.is_result]
        matched += self.moved
        count = len(matched) + len(self.unmatched)
        text = f"{len(matched)} of {count} {noun} compared"
        text += f", the reference is {self.layout.upper()}" if self.layout != "same" else ""
        if not self.is_layout_known:
            text += "; the layout of the reference is unknown: pass --layout nchw, nhwc or same"
        names = [one.name for one in (*self.unmatched, *matched)]
        missing = make_display_names(names)[: len(self.unmatched)]
        if missing:
            more = f" and {len(missing) - _MAX_NAMES} more" if len(missing) > _MAX_NAMES else ""
            text += f"; not in the reference: {', '.join(missing[:_MAX_NAMES])}{more}"
        doubtful = [pair.reference.name for pair in self.pairs if pair.is_out_of_order]
        if doubtful:
            text += f"; {', '.join(doubtful[:_MAX_NAMES])} of the reference not in the run's order"
        return text
