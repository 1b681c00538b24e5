"""HTML page of a verification: values of program and reference side by side."""

from __future__ import annotations

from pathlib import Path

from nmpsim.escape import escape_line
from nmpsim.verification import Verification
from nmpsim.views.html.tables import make_table
from nmpsim.views.measures import make_columns
from nmpsim.views.templates import load_template
from nmpsim.views.verify_text import (
    describe_sample,
    describe_verification,
    make_layer_names,
    make_verification_columns,
)


def make_verification_page(verification: Verification) -> str:
    """Return a self-contained HTML page of a verification."""
    shown = make_layer_names(verification)
    samples = []
    for sample in verification.samples:
        verdict, *facts = describe_sample(sample, verification.runtime, shown)
        samples.append(
            {
                "name": escape_line(sample.input),
                "verdict": verdict,
                "facts": facts,
                "outputs": make_table(sample.outputs, *make_columns("verify_outputs")),
                "layers": make_table(sample.layers, *make_verification_columns(shown)),
            }
        )
    page: str = load_template("html/verify.html.jinja").render(
        title=f"Verification of {escape_line(Path(verification.program).name)}",
        lines=describe_verification(verification),
        samples=samples,
    )
    return page
