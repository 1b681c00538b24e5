"""Detection of model formats by the first bytes of a file."""

from __future__ import annotations

from pathlib import Path

TFLITE_IDENTIFIER = b"TFL3"
_ONNX_FIELDS = b"\x12\x1a\x22\x2a\x32\x3a\x42"
"""Tags of the fields that can follow the version in an ONNX file."""


def is_tflite(head: bytes) -> bool:
    """Return whether a file that begins with these bytes is a TFLite file."""
    return head[4:8] == TFLITE_IDENTIFIER


def is_onnx(head: bytes) -> bool:
    """Return whether a file that begins with these bytes is an ONNX file."""
    return len(head) > 2 and head[0] == 0x08 and 0 < head[1] < 0x80 and head[2] in _ONNX_FIELDS


_TO_TFLITE = "convert it to a quantized TFLite file with tf.lite.TFLiteConverter"
_TO_TORCH = (
    "build the model in Python and give it to nmpsim.from_torch(model, example_inputs),"
    " or export it with torch.onnx.export"
)
_HDF5 = b"\x89HDF\r\n\x1a\n"
_ZIP = b"PK\x03\x04"
_OLD_PYTORCH = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j"
"""Pickled magic number at the beginning of files of torch.save before version 1.6."""
_LFS_POINTER = b"version https://git-lfs"
_LIR = b"function"


def describe_other_format(path: Path, head: bytes) -> tuple[str, str] | None:
    """Return the name of a format that is not read and a hint; None if the format is unknown.

    Parameters
    ----------
    path : Path
        The file, or a folder.
    head : bytes
        First bytes of the file; empty for a folder.
    """
    if path.is_dir():
        is_saved_model = (path / "saved_model.pb").is_file()
        return ("a TensorFlow SavedModel", _TO_TFLITE) if is_saved_model else None
    suffix = path.suffix.lower()
    if path.name == "saved_model.pb":
        return "a TensorFlow SavedModel", _TO_TFLITE
    if head.startswith(_HDF5):
        return "an HDF5 file, as Keras saves models", _TO_TFLITE
    if head.startswith(_ZIP) and b"metadata.json" in head:
        return "a Keras model", _TO_TFLITE
    if head.startswith(_OLD_PYTORCH) or (
        head.startswith(_ZIP) and (suffix in (".pt", ".pth") or b"/data.pkl" in head)
    ):
        return "a PyTorch file", _TO_TORCH
    if suffix not in (".onnx", ".tflite"):
        return None
    if not head:
        return "an empty file", "download or convert the model again"
    if head.startswith(_LFS_POINTER):
        return "a pointer of Git LFS, not the model itself", "git lfs pull"
    if _is_text(head) and not head.lstrip().startswith(_LIR):
        return (
            f"text: {head[:32].decode('ascii', 'replace')!r}",
            "save the model in its binary form; a download may have saved a web page in its place",
        )
    return None


def _is_text(head: bytes) -> bool:
    return all(byte in b"\t\n\r" or 0x20 <= byte < 0x7F for byte in head)
