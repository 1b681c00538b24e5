"""Addresses and transfers of the rows of a tensor in a core's scratchpad."""

from __future__ import annotations

from typing import Any

import attrs

from nmpsim.compiler.tiling.chain_layers import ChainTensor
from nmpsim.compiler.tiling.chain_schedule import Span
from nmpsim.compiler.tiling.plan import make_box_words


@attrs.frozen(eq=False)
class BufferedRows:
    """Buffered rows of a tensor in the scratchpad of a core, with a range of channels."""

    tensor: ChainTensor
    first: int
    """First channel."""
    run: int
    """Bytes of a pixel."""
    row: int
    """Bytes of a row with its padding."""
    start: int
    """Address of column 0 of the first row in the buffer."""
    begin: int
    """First row, which may be padding."""
    end: int
    left: int
    right: int
    origin: int
    """Index of the first element of the core's image among the elements of its images."""

    def get_address(self, row: int) -> int:
        """Return the scratchpad address of column 0 of the row ``row``."""
        return self.start + (row - self.begin) * self.row

    def get_span(self, begin: int, end: int, *, with_padding: bool = False) -> Span:
        """Return the scratchpad bytes from the first to the last pixel of rows, as [begin, end)."""
        left, right = (self.left, self.right) if with_padding else (0, 0)
        last = self.get_address(end - 1) + (self.tensor.columns + right) * self.run
        return self.get_address(begin) - left * self.run, last

    def make_strided_words(self, rows: tuple[int, int]) -> dict[str, Any]:
        """Make the descriptor words of a transfer of rows, with one run for each pixel."""
        tensor = self.tensor
        return make_box_words(
            tensor.address + rows[0] * tensor.row_bytes + self.first * tensor.element_bytes,
            self.get_address(rows[0]),
            self.run,
            tensor.columns,
            rows[1] - rows[0],
            dram_stride_x=tensor.pixel_bytes,
            dram_stride_y=tensor.row_bytes,
            spm_stride_x=self.run,
            spm_stride_y=self.row,
        )

    def make_box_words(self, rows: tuple[int, int]) -> dict[str, Any]:
        """Make the words of a transfer of rows, with a single run if the bytes are consecutive."""
        words = self.make_strided_words(rows)
        if self.row == self.tensor.row_bytes:
            nbytes = (rows[1] - rows[0]) * self.row
            return make_box_words(words["dram"], words["spm"], nbytes)
        return words
