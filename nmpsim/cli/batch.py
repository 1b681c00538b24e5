"""``nmpsim run`` on several inputs: one run after another, reported in one table."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs

from nmpsim.atomic import write_npz
from nmpsim.cli.guard import print_message
from nmpsim.cli.output import show_progress, write_result
from nmpsim.diagnostics import EXIT_OK, EXIT_TIMEOUT, EXIT_WORSE

if TYPE_CHECKING:
    import numpy.typing as npt

    from nmpsim.bundle import Bundle
    from nmpsim.cli.run_options import RunCommandOptions
    from nmpsim.cli.samples import InputSample
    from nmpsim.core.device import Device


def run_batch(
    options: RunCommandOptions, device: Device, bundle: Bundle, samples: Sequence[InputSample]
) -> int:
    """Run a bundle on each sample in turn, write a report of all runs and return the exit code.

    Raises UserError for a sample that does not fit, before the first run.
    """
    import numpy as np

    from nmpsim.core.run import Progress
    from nmpsim.views.batch_text import RunSummary, make_runs_document, print_batch

    for sample in samples:
        sample.load()
    runs: list[RunSummary] = []
    outputs: list[dict[str, npt.NDArray[Any]]] = []
    code, states = EXIT_OK, {one.name for one in bundle.metadata.states}
    with show_progress() as progress:

        def report_compiling(event: Progress) -> None:
            if event.kind == "compiling":
                progress(event)

        for done, sample in enumerate(samples):
            progress(Progress("sample", done, len(samples), sample.name))
            report = device.run(
                bundle,
                sample.load(),
                progress=report_compiling,
                limits=options.limits.make_limits(),
                strict=options.strict,
                reset_state=options.reset_state,
            )
            shown = tuple(one for one in report.output_reports if one.name not in states)
            summary = attrs.evolve(report, output_reports=shown)
            runs.append(RunSummary.from_report(sample.files, summary))
            outputs.append(dict(report.outputs) if options.save_outputs is not None else {})
            if report.trap is not None:
                is_timeout = report.trap.kind == "timeout"
                code = EXIT_TIMEOUT if is_timeout or code == EXIT_TIMEOUT else EXIT_WORSE
    if options.save_outputs is not None and code != EXIT_OK:
        path = options.save_outputs
        print_message(f"warning: not every run completed; {path} is not written")
    elif options.save_outputs is not None:  # each output as one array with a row per input
        arrays = {name: np.stack([one[name] for one in outputs]) for name in outputs[0]}
        write_npz(options.save_outputs, arrays)
    write_result(
        options.format,
        partial(make_runs_document, bundle=bundle.digest),
        print_batch,
        bundle.metadata.program,
        runs,
        output=options.output,
    )
    return code
