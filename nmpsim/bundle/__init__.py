"""The file that a compiled network is: build, write, read."""

from nmpsim.bundle.file import BundleFile
from nmpsim.bundle.metadata import HostOperand, Layer, Metadata, ProgramStep, Tensor
from nmpsim.bundle.read import (
    Bundle,
    HoldsBundle,
    bundle_from_bytes,
    bundle_of,
    read_bundle,
)
from nmpsim.bundle.write import BundleBuilder, write_bundle

__all__ = [
    "Bundle",
    "BundleBuilder",
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
    "write_bundle",
]
