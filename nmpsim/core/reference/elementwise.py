"""``nmp.eltwise``: two tensors, each with its own scale, one operation."""

from __future__ import annotations

from nmpsim.core.reference.arithmetic import Steps, clip, result_of
from nmpsim.core.reference.events import LayerCounters, ResultPositions, saturate
from nmpsim.core.reference.operands import Scratchpad, Words, element_of, grid
from nmpsim.core.reference.profiles import PAIRS
from nmpsim.core.reference.step import Step
from nmpsim.core.state import Int64s
from nmpsim.isa.words import RHS_INT32
from nmpsim.kernels.saturation_stages import RESCALE


def pair(left: Int64s, right: Int64s, d: Words, place: ResultPositions) -> Steps:
    """Results of two sides less their zero points: profile, clip."""
    values = yield from PAIRS[d["profile"]](left, right, d, place)
    yield clip(values, d, place)


def eltwise(s: Step, d: Words, account: LayerCounters) -> None:
    """The instruction: operands, effect."""
    spm, rows, columns = Scratchpad(s.core), d["rows"], d["columns"]
    element = element_of(d)
    nbytes = element.nbytes
    right_bytes = 4 if d["rhs_kind"] == RHS_INT32 else nbytes
    index = grid(d["event_origin"], (rows, d["event_stride_y"]), (columns, 1))
    place = ResultPositions(account, index)
    lhs = spm.read(nbytes, grid(d["lhs"], (rows, d["lhs_stride"]), (columns, nbytes)))
    rhs = spm.read(right_bytes, grid(d["rhs"], (rows, d["rhs_stride"]), (columns, right_bytes)))
    left, right = lhs - d["lhs_offset"], saturate(rhs - d["rhs_offset"], 32, RESCALE, place)

    results = result_of(pair(left, right, d, place))
    spm.write(nbytes, grid(d["output"], (rows, d["out_stride"]), (columns, nbytes)), results)
    account.add_elements(rows * columns)


INSTRUCTIONS = {"nmp.eltwise": eltwise}
"""Mnemonic -> what it does."""
