"""JSON document of ``nmpsim verify``."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypedDict

from nmpsim.report.fields import Source
from nmpsim.verification.compare import (
    OutputChange,
    VariantComparison,
    VerifiedLayer,
)

SCHEMA: Final = "nmpsim-verify-1"
"""Schema and version of the document."""


class SampleDocument(TypedDict):
    """JSON form of the verification of one input."""

    input: Annotated[str, "file of the input"]
    equal: Annotated[bool, Source("is_equal")]
    trap: Annotated[str | None, Source(lambda one: one.trap or None), "why the run did not end"]
    compared: Annotated[int, Source(lambda one: len(one.compared)), "layers that are compared"]
    differing: Annotated[int, Source(lambda one: len(one.differing)), "layers that differ"]
    first_wrong: Annotated[
        str | None,
        Source("first_wrong.name"),
        "the first layer that differs with the reference's inputs",
    ]
    causes: Annotated[list[str], "likely causes of this layer's errors, most likely first"]
    outputs: list[OutputChange]
    variants: Annotated[list[VariantComparison], "the runtime with other settings"]
    layers: list[VerifiedLayer]


class VerificationDocument(TypedDict):
    """Output of `nmpsim verify --format json`."""

    schema: Literal["nmpsim-verify-1"]
    program: Annotated[str, "file of the program"]
    reference: Annotated[str, "file of the reference"]
    runtime: Annotated[str, "reference runtime with its version and settings"]
    equal: Annotated[bool, Source(lambda found: not found.differing)]
    samples: list[SampleDocument]
