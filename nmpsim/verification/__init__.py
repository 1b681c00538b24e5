"""Verification of a program: every layer against the model file in its own runtime."""

from nmpsim.verification.compare import (
    OutputChange,
    SampleVerification,
    VariantComparison,
    Verification,
    VerifiedLayer,
    list_expected_outputs,
    verify_sample,
)
from nmpsim.verification.document import VerificationDocument

__all__ = [
    "OutputChange",
    "SampleVerification",
    "VariantComparison",
    "Verification",
    "VerifiedLayer",
    "list_expected_outputs",
    "VerificationDocument",
    "verify_sample",
]
