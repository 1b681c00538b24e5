"""The file that a compiled network is; :mod:`nmpsim.bundle.write` builds and writes it."""

from nmpsim.bundle.file import BundleFile
from nmpsim.bundle.metadata import HostOperand, Layer, Metadata, ProgramStep, Tensor
from nmpsim.bundle.read import (
    Bundle,
    BundleHolder,
    get_bundle,
    parse_bundle,
    read_bundle,
)

__all__ = [
    "Bundle",
    "BundleFile",
    "BundleHolder",
    "HostOperand",
    "Layer",
    "Metadata",
    "ProgramStep",
    "Tensor",
    "parse_bundle",
    "get_bundle",
    "read_bundle",
]
