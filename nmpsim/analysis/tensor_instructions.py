"""Decode the tensor instructions of a program's image, with their descriptors."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, lru_cache

import attrs

from nmpsim.bundle import Bundle
from nmpsim.isa.codec import decode, decode_descriptor
from nmpsim.isa.table import DESCRIPTORS, DeviceInstruction
from nmpsim.memory.bounds import count_spanned_bytes

_CHANNELS = {"conv": "out_channels", "dwconv": "channels_count", "avgpool": "channels"}
"""Descriptor of an instruction on images -> its word with the number of result channels."""
_MATRICES = ("gemm", "eltwise")
_RESULTS = frozenset({"output", "partial", "dram", "spm"})
"""Address words of a descriptor that are not sources in the scratchpad."""
_UNFINISHED = (1, 2)
"""Values of ``part`` whose result is a partial sum."""


@attrs.frozen
class TensorInstruction:
    """Decoded tensor instruction and the words of its descriptor."""

    instruction: DeviceInstruction
    name: str
    """Name of the descriptor, such as ``conv``."""
    words: Mapping[str, int]
    """Words of the descriptor by name; empty if it is not in the program's image."""

    @cached_property
    def mnemonic(self) -> str:
        """Mnemonic of the instruction without ``nmp.``."""
        return self.instruction.mnemonic.removeprefix("nmp.")

    @cached_property
    def source_addresses(self) -> tuple[int, ...]:
        """Scratchpad addresses of the sources, or () for a load or an unknown descriptor."""
        addresses = (word.name for word in DESCRIPTORS[self.name] if word.address)
        return tuple(
            self.words[name] for name in addresses if name in self.words and name not in _RESULTS
        )

    @cached_property
    def loaded_range(self) -> tuple[int, int]:
        """Start and end of the scratchpad range that a load writes, or (0, 0) if not a load."""
        words = self.words
        if self.name != "load" or not words:
            return 0, 0
        high = words["pad_y_before"] + words["count_y"] + words["pad_y_after"]
        wide = words["pad_x_before"] + words["count_x"] + words["pad_x_after"]
        extent = count_spanned_bytes(
            high, words["spm_stride_y"], wide, words["spm_stride_x"], words["run_bytes"]
        )
        return words["spm"], words["spm"] + extent

    def find_offset(self, element: int) -> int | None:
        """Return the byte offset of an output element in the result, or None if not in the result.

        Parameters
        ----------
        element
            Row-major index in the layer's output.

        Returns
        -------
        int or None
            None if this instruction does not compute it or only a partial sum. Known only for
            instructions that can saturate: those of the MAC array, avgpool, eltwise, rescale.
        """
        if "event_origin" not in self.words or self.words.get("part", 0) in _UNFINISHED:
            return None
        return _offset(self.name, self.words, element - self.words["event_origin"])


def decode_tensor_instruction(bundle: Bundle, pc: int, descriptor: int) -> TensorInstruction | None:
    """Decode an instruction and its descriptor; return None if it is no tensor instruction.

    Parameters
    ----------
    bundle
        The program.
    pc
        Address of the instruction.
    descriptor
        Address of its descriptor.

    Returns
    -------
    TensorInstruction or None
        None if the code is not in the program's image or is not a tensor instruction.
    """
    code = read_image_bytes(bundle, pc, 4)
    instruction = _instruction(int.from_bytes(code, "little")) if code else None
    if instruction is None or instruction.descriptor is None:
        return None
    name = instruction.descriptor
    data = read_image_bytes(bundle, descriptor, DESCRIPTORS[name].nbytes)
    return TensorInstruction(instruction, name, decode_descriptor(name, data) if data else {})


@lru_cache(maxsize=1024)
def _instruction(word: int) -> DeviceInstruction | None:
    """Decode an instruction word; cached, because programs repeat few words."""
    decoded = decode(word)
    return None if decoded is None else decoded.instruction


def _offset(name: str, words: Mapping[str, int], left: int) -> int | None:
    if name in _CHANNELS:
        y, left = _step(left, words["event_stride_y"])
        x, channel = _step(left, words["event_stride_x"])
        inside = 0 <= y < words["out_h"] and 0 <= x < words["out_w"]
        inside = inside and 0 <= channel < words[_CHANNELS[name]]
        lead = y * words["out_row_stride"] + x * words["out_pixel_stride"]
    elif name in _MATRICES:
        y, channel = _step(left, words["event_stride_y"])
        inside = 0 <= y < words["rows"] and 0 <= channel < words["columns"]
        lead = y * words["out_stride"]
    else:
        channel, lead = left, 0
        inside = 0 <= channel < words.get("count", 0)
    return lead + (channel << words["element"]) if inside else None


def _step(left: int, stride: int) -> tuple[int, int]:
    return divmod(left, stride) if stride else (0, left)


def read_image_bytes(bundle: Bundle, address: int, count: int) -> bytes:
    """Return ``count`` bytes of a program's image, or b"" for a range outside the image."""
    start = address - bundle.image_base
    fits = start >= 0 and start + count <= bundle.image.size
    return bundle.image[start : start + count].tobytes() if fits else b""
