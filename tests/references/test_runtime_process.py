"""A reference runtime in a child process that crashes, hangs or exhausts memory."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import numpy as np
import pytest

from nmpsim.diagnostics import UserError
from nmpsim.references.runtime import DEFAULT_TIMEOUT, ProcessLimits
from nmpsim.references.runtime_process import RuntimeProcess
from tests.references.failing_runtime import FailingRuntime

X = np.array([3, 4], np.int8)


def test_results_and_defects_of_the_process_are_returned() -> None:
    runtime = RuntimeProcess(FailingRuntime, Path("works.tflite"))
    assert (runtime.name, runtime.output_names) == ("failing runtime 1.0", ("y",))
    assert runtime.inputs[0].shape == (2,)
    assert runtime._timeout == DEFAULT_TIMEOUT
    np.testing.assert_array_equal(runtime.run({"x": X}, ())["y"], X)
    with pytest.raises(RuntimeError, match="KeyError: 'z'"):
        runtime.run_variants({"x": X})
    process = runtime._process
    del runtime
    gc.collect()
    process.join(10)
    assert not process.is_alive()


CRASHED = "the process of the reference runtime crashed"


@pytest.mark.parametrize(
    ("failure", "message", "detail"),
    [
        ("exit", CRASHED, "exit code 3"),
        ("crash", CRASHED, "signal SIGSEGV"),
        ("hang", "the reference runtime takes longer than allowed", "a result within 0.1 s"),
        ("memory", "the reference runtime needs more memory than allowed", "at most 100 MB"),
    ],
)
def test_a_failure_of_the_process_is_an_error_of_the_reference(
    failure: str, message: str, detail: str
) -> None:
    if failure in ("crash", "memory") and sys.platform != "linux":
        pytest.skip("signals and limits of memory are those of Linux")
    path = Path(f"{failure}.tflite")
    runtime = RuntimeProcess(FailingRuntime, path, ProcessLimits(max_memory=100_000_000))
    runtime._timeout = 0.1 if failure == "hang" else None  # the process has started
    with pytest.raises(UserError) as error:
        runtime.run({"x": X}, ())
    (found,) = error.value.diagnostics
    assert found.code == "REF001"
    assert found.place is not None
    assert found.place.file == str(path)
    assert found.message == message
    assert detail in (found.found, found.expected)
