"""A user's project: a network, its suite and baselines."""

import json
from pathlib import Path

import attrs
from click.testing import CliRunner

import nmpsim

SUITE = """
[defaults]
device = "board.toml"
lir = "digits.lir.txt"

[[case]]
name = "seven"
bundle = "digits.bin"
input = "images/7.npy"
baseline = "seven.json"
expect.top1 = 7
"""


@attrs.frozen
class Project:
    """Folder of a user's project."""

    folder: Path

    def compile(self, tiling: str = "layer", **options: object) -> None:
        """Compile the network in the folder to a bundle, by default without chains."""
        files = (self.folder / "digits.lir.txt", self.folder / "digits.npz")
        nmpsim.save(nmpsim.compile(*files, tiling=tiling, **options), self.folder / "digits.bin")

    def write(self, text: str, name: str = "suite.toml") -> None:
        """Write a text file to the folder."""
        (self.folder / name).write_text(text, encoding="utf-8")

    def check(self, *words: object, program: str = "suite.toml"):
        """Run ``nmpsim check`` within this process."""
        return run_cli("check", self.folder / program, "--jobs", 1, *words)

    def statuses(self, *words: object) -> dict[str, str]:
        """Return the status of each check of the only case."""
        return {check["name"]: check["status"] for check in self.found(*words)["checks"]}

    def found(self, *words: object) -> dict:
        """Return the JSON object of the only case."""
        (case,) = json.loads(self.check("--format", "json", *words).stdout)["cases"]
        return case


def run_cli(*words: object):
    from nmpsim.cli.app import app

    return CliRunner().invoke(app, [str(word) for word in words])
