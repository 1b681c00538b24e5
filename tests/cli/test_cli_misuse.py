"""Test that a wrong kind of file gives exit code 2, an error code and the file's name."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from nmpsim.cli.app import COMMANDS, app

DIGITS = Path(__file__).parents[2] / "programs" / "digits"
FIR = Path(__file__).parents[1] / "debuginfo" / "programs" / "fir.elf"
KERNEL = Path(__file__).parents[1] / "fuzz" / "corpus" / "kernel" / "constant.elf"
COPIES = {
    "net.lir": "digits.lir.txt",
    "net.tensors.json": "digits.tensors.json",
    "w.npz": "digits.npz",
    "f.npz": "float_weights.npz",
    "float.lir": "float.lir.txt",
    "x.npy": "images/7.npy",
    "ds.npz": "testset.npz",
}
LINES = [  # @ marks a file that is replaced by each bad one in turn
    "asm @net.s -o out.bin --device @d.toml",
    "c-flags --device @d.toml",
    "check @suite.toml",
    "check net.bin --input @x.npy --device @d.toml --expect @o.npz --expect-layers @l.npz",
    "check net.bin --input x.npy --baseline @b.json",
    "check @fir.elf --device @d.toml",
    "compile @net.lir --weights @w.npz --tensors @net.tensors.json --device @d.toml -o out.bin",
    "compile net.lir --weights w.npz --patch @p.json -o out.bin",
    "compile net.lir --weights w.npz --kernel conv1__2=@kernel.elf:kernel -o out.bin",
    "debug @net.bin --input @x.npy --reference @l.npz --device @d.toml --script @s.txt",
    "device @d.toml",
    "diff @l.npz @l.npz --bundle @net.bin",
    "disasm @net.bin",
    "eval @net.bin --dataset @ds.npz --labels @labels.csv --limit 1 --jobs 1",
    "explain @net.lir conv1__2 --weights @w.npz --tensors @net.tensors.json",
    "fit @d.toml @m.csv -o fitted.toml",
    "history kept @r.json --commit one",
    "identify @net.bin --dumps @l.npz -o found.toml",
    "inspect @net.bin",
    "link @fir.elf --output result:i32[8] --device @d.toml -o out.bin",
    "lint @net.lir --weights @w.npz --float-weights @f.npz --original-weights @w.npz",
    "quantize @float.lir --weights @f.npz --calibration @ds.npz -o q.lir",
    "reduce @net.bin --input @x.npy --reference @l.npz --device @d.toml -o part",
    "report @r.json -o page.html",
    "run @net.bin --input @x.npy --device @d.toml --patch @p.json",
    "run net.bin --input x.npy --shadow --float-weights @f.npz",
    "run @fir.elf --check-pointers --commit-log log.txt --profile p.json --device @d.toml",
    "verify @net.bin --reference @l.npz --device @d.toml --input @x.npy",
    "sweep @net.lir --weights @w.npz --input @x.npy --grid @grid.toml --device @d.toml -o s.csv",
]
PLACES = [(line, index) for line in LINES for index, word in enumerate(line.split()) if "@" in word]
MAY_BE_EMPTY = ("@d.toml", "@s.txt")


class Harmful:
    """Object that writes a file when it is unpickled."""

    def __reduce__(self):
        return Path.touch, (Path("unpickled"),)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with all files that the command lines name."""
    folder = tmp_path_factory.mktemp("Müllers Netze")
    for name, source in COPIES.items():
        shutil.copy(DIGITS / source, folder / name)
    shutil.copy(FIR, folder / "fir.elf")
    shutil.copy(KERNEL, folder / "kernel.elf")
    (folder / "d.toml").write_text("[dram]\nlatency_cycles = 50\n")
    (folder / "grid.toml").write_text("[cores]\ncount = [1]\n")
    (folder / "suite.toml").write_text(
        '[[case]]\nbundle = "net.bin"\ninput = "x.npy"\nexpect.top1 = 7\n'
    )
    (folder / "m.csv").write_text("program,layer,cycles\nnet.bin,conv1__2,500\n")
    (folder / "s.txt").write_text("layers\n")
    (folder / "labels.csv").write_text("7\n" * 450)
    saved = "--save-outputs o.npz --save-layers l.npz --format json -o r.json"
    before = Path.cwd()
    os.chdir(folder)
    try:
        for line in (
            "compile net.lir --weights w.npz -o net.bin",
            f"run net.bin --input x.npy {saved}",
            "check net.bin --input x.npy --baseline b.json --update-baseline",
            "disasm net.bin --data -o net.s",
            "debug net.bin --input x.npy -c 'change conv2__2 out_post 14' -c 'export p.json'",
        ):
            assert run(line)[0] == 0, line
        bad_files(Path("bad"))
    finally:
        os.chdir(before)
    return folder


def bad_files(bad):
    bad.mkdir()
    (bad / "empty").touch()
    (bad / "folder").mkdir()
    (bad / "random").write_bytes(np.random.default_rng(1).bytes(5000))
    (bad / "truncated").write_bytes(Path("net.bin").read_bytes()[:20000])
    np.save(bad / "objects", np.array([Harmful()], object), allow_pickle=True)


def run(line):
    result = CliRunner().invoke(app, shlex.split(line))
    return result.exit_code, result.stdout + result.stderr


def test_every_command_is_tested():
    assert {line.split()[0] for line in LINES} == set(COMMANDS)


@pytest.mark.parametrize(
    "bad", ["missing", "empty", "folder", "random", "truncated", "objects.npy"]
)
def test_an_unusable_file_is_named(folder, monkeypatch, bad):
    monkeypatch.chdir(folder)
    for line, index in PLACES:
        words = line.split()
        if bad == "empty" and words[index] in MAY_BE_EMPTY:
            continue
        words[index] = re.sub(r"@[\w.]+", f"bad/{bad}", words[index])
        given = " ".join(words).replace("@", "")
        before = set(folder.iterdir())
        code, said = run(given)
        assert code == 2, f"{given}\n{said}"
        assert "error[" in said, given
        assert f"bad/{bad}" in said, f"{given}\n{said}"
        assert set(folder.iterdir()) == before, given  # nothing half-written, nothing unpickled


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_inputs_must_be_numbers(folder, monkeypatch, tmp_path, value):
    monkeypatch.chdir(folder)
    np.save(tmp_path / "x.npy", np.full((1, 1, 8, 8), value, np.float32))
    lines = ["run net.bin --shadow --input {}"]
    if np.isnan(value):
        lines += ["run net.bin --input {}", "reduce net.bin -o part --input {}"]
        lines += ["debug net.bin -c layers --input {}"]
    for line in lines:
        code, said = run(line.format(f"'{tmp_path / 'x.npy'}'"))
        assert code == 2, said
        assert "error[INPUT002]" in said


@pytest.mark.parametrize(
    ("kernel", "code"),
    [
        ("nolayer=kernel.elf", "COMP001"),
        ("prob=kernel.elf", "COMP001"),
        ("conv1__2=fir.elf", "ARG001"),
        ("conv1__2=kernel.elf:none", "ARG001"),
        ("conv1__2", "ARG001"),
        ("=fir.elf", "ARG001"),
    ],
)
def test_a_wrong_kernel_is_refused(folder, monkeypatch, kernel, code):
    monkeypatch.chdir(folder)
    exit_code, said = run(f"compile net.lir --weights w.npz --kernel {kernel} -o out.bin")
    assert (exit_code, f"error[{code}]" in said) == (2, True), said
    assert not Path("out.bin").exists()


def test_a_missing_value_names_option_and_command(folder):
    code, said = run("explain --range 1")
    assert code == 2
    assert "`nmpsim explain --help`" in said
