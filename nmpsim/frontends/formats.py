"""What a model's file is, by its first bytes."""

from __future__ import annotations

TFLITE_IDENTIFIER = b"TFL3"
_ONNX_FIELDS = b"\x12\x1a\x22\x2a\x32\x3a\x42"
"""What can follow the version in an ONNX file: texts, the graph, versions of operators."""


def is_tflite(head: bytes) -> bool:
    """True for a TFLite file that begins with these bytes."""
    return head[4:8] == TFLITE_IDENTIFIER


def is_onnx(head: bytes) -> bool:
    """True for an ONNX file: the version of its format comes first."""
    return len(head) > 2 and head[0] == 0x08 and 0 < head[1] < 0x80 and head[2] in _ONNX_FIELDS
