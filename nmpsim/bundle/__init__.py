"""The file that a compiled network is; :mod:`nmpsim.bundle.write` builds and writes it."""

from nmpsim.bundle.file import BundleFile
from nmpsim.bundle.metadata import HostOperand, Layer, Metadata, ProgramStep, Tensor
from nmpsim.bundle.read import (
    Bundle,
    HoldsBundle,
    bundle_from_bytes,
    bundle_of,
    read_bundle,
)

__all__ = [
    "Bundle",
    "BundleFile",
    "HoldsBundle",
    "HostOperand",
    "Layer",
    "Metadata",
    "ProgramStep",
    "Tensor",
    "bundle_from_bytes",
    "bundle_of",
    "read_bundle",
]
