"""``nmpsim run`` on several inputs: one run after the other, and one line for each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmpsim.atomic import write_npz
from nmpsim.cli.guard import say
from nmpsim.cli.options import show
from nmpsim.diagnostics import EXIT_OK, EXIT_TIMEOUT, EXIT_WORSE

if TYPE_CHECKING:
    import numpy.typing as npt

    from nmpsim.bundle import Bundle
    from nmpsim.cli.samples import Sample
    from nmpsim.core.device import Device
    from nmpsim.core.limits import Limits


def run_several(
    device: Device,
    bundle: Bundle,
    samples: Sequence[Sample],
    *,
    limits: Limits,
    strict: bool,
    save_outputs: Path | None,
    style: str,
    output: Path | None,
) -> int:
    """Run a bundle on each sample and report; the exit code.

    Raises :class:`~nmpsim.diagnostics.UserError` for a sample that does not fit, before any run.
    """
    from nmpsim.core.run import Progress
    from nmpsim.views.progress import RunProgress, stderr_console
    from nmpsim.views.several_text import OneRun, print_several, several_json

    for sample in samples:
        sample.fitting()
    runs: list[OneRun] = []
    outputs: list[dict[str, npt.NDArray[Any]]] = []
    code = EXIT_OK
    with RunProgress(stderr_console()) as progress:

        def compiling(event: Progress) -> None:
            if event.kind == "compiling":
                progress(event)

        for done, sample in enumerate(samples):
            progress(Progress("sample", done, len(samples), sample.name))
            report = device.run(
                bundle, sample.fitting(), progress=compiling, limits=limits, strict=strict
            )
            runs.append(OneRun.of(sample.files, report))
            outputs.append(dict(report.outputs) if save_outputs is not None else {})
            if report.trap is not None:
                late = report.trap.kind == "timeout"
                code = EXIT_TIMEOUT if late or code == EXIT_TIMEOUT else EXIT_WORSE
    if save_outputs is not None:
        _save(save_outputs, outputs, complete=code == EXIT_OK)
    name = bundle.metadata.program
    show(
        style,
        lambda: several_json(name, bundle.digest, runs),
        lambda console: print_several(name, runs, console),
        output,
    )
    return code


def _save(path: Path, outputs: Sequence[dict[str, npt.NDArray[Any]]], *, complete: bool) -> None:
    """All outputs of a name in one array, one input after the other."""
    if not complete:
        say(f"warning: not all runs reached their end; {path} is not written")
        return
    import numpy as np

    stacked = {name: np.stack([one[name] for one in outputs]) for name in outputs[0]}
    write_npz(path, stacked)
