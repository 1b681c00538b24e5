"""Session without a simulator; as a script, the command line with that session.

The variable ``STAND_IN`` chooses what a run does: ``trap``, ``bug``, ``slow``, ``compiling``.
"""

import os
import sys
import time
import types
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[1] / "report"), str(Path(__file__).parents[2])]

import numpy as np
from report_samples import TRAP, sample_report

from nmpsim.bundle import parse_bundle, read_bundle
from nmpsim.bundle.assembly import assemble
from nmpsim.config import DeviceConfig, make_device_config

PROGRAM = """
    .input data, i8[S:0.5 O:0]<1 x 4>
    {more}
    .output prob, float<1 x 6>
    .buffer scores, i8[S:0.5 O:0]<1 x 6>
    .layer 0, fc, fullyconnected, scores, 0
    _start: nmp.halt
"""


def one_input_image() -> bytes:
    return assemble(
        PROGRAM.format(more=""), "one.s", {"name": "nmp", "cores_count": 32}
    ).build_bundle()


def two_inputs_image() -> bytes:
    more = ".input mask, float<2 x 3>"
    return assemble(
        PROGRAM.format(more=more), "net.s", {"name": "nmp", "cores_count": 32}
    ).build_bundle()


class Session(types.ModuleType):
    """Replacement of ``nmpsim.session`` with the names that the command line uses."""

    def __init__(self, behaviour: str = "") -> None:
        super().__init__("nmpsim.session")
        self.behaviour = behaviour
        self.calls: list[dict[str, Any]] = []
        self.warnings: tuple[str, ...] = ()

    def compile(self, lir: Path, *files: Path | None, **options: Any) -> types.SimpleNamespace:
        self.calls.append({"lir": lir, "files": files, **options})
        image = one_input_image()
        metadata = parse_bundle(image).metadata
        file = types.SimpleNamespace(metadata=metadata, nbytes=len(image), check=lambda path: None)
        return types.SimpleNamespace(file=file, image=image, warnings=self.warnings)

    def save(self, compiled: types.SimpleNamespace, path: Path) -> str:
        Path(path).write_bytes(compiled.image)
        return parse_bundle(compiled.image).digest

    def is_model(self, path: Path) -> bool:
        """Return False: the tests use no model files."""
        return False

    def load(self, path: Path, patch: Path | None = None, *, device: Any = None) -> Any:
        return read_bundle(path)

    def get_device(self, bundle: Any) -> DeviceConfig:
        return make_device_config(bundle.metadata.device)

    def Device(  # noqa: N802
        self, config: Any = None, engine: str = "compiled", **_: Any
    ) -> types.SimpleNamespace:
        def run(
            bundle: Any, inputs: Any, *, save_layers: bool = False, progress: Any, **more: Any
        ) -> Any:
            self.calls.append({"inputs": inputs, "config": config, "engine": engine, **more})
            return self._run(save_layers, progress)

        return types.SimpleNamespace(run=run, config=config)

    def _run(self, save_layers: bool, progress: Any) -> Any:
        if self.behaviour == "bug":
            raise IndexError("list index out of range")
        if self.behaviour == "compiling":
            for _ in range(2):
                progress(types.SimpleNamespace(kind="compiling", done=0, total=0, name=""))
        if self.behaviour == "slow":
            Path(os.environ["STAND_IN_READY"]).touch()
            for done in range(600):
                progress(types.SimpleNamespace(kind="layer", done=done, total=600, name="conv"))
                time.sleep(0.05)
        layers = {"0010:fc": np.zeros((1, 6), np.int8)} if save_layers else {}
        trap = TRAP if self.behaviour == "trap" else None
        return sample_report(trap=trap, layer_outputs=layers)


def main() -> None:
    """Run the command line with the stand-in session."""
    import nmpsim
    from nmpsim.cli import main

    session = Session(os.environ.get("STAND_IN", ""))
    sys.modules["nmpsim.session"] = session
    nmpsim.__dict__["session"] = session
    main()


if __name__ == "__main__":
    main()
