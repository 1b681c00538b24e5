"""Run every command and Python block of every page in a new folder."""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import attrs
import numpy as np
import pytest
from page_blocks import check_output, command_lines, pages, parse_blocks, run_block, run_here
from PIL import Image
from tflite_files import small_network, streaming_network
from torch_records import record_half_bias

import nmpsim
from nmpsim.frontends.torch import lower_recording

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "programs" / "digits"
ELSEWHERE = {
    "docs/numerics.md": "tests/numerics run it against the references' vectors",
    "docs/pytest.md": "its Python is for pytest to run; tests/checking run the plugin",
    "docs/quantize.md": "tests/quantization/test_quantize_page.py runs it",
}
SUITE = """
[[case]]
bundle = "digits.bin"
input = "7.npy"
baseline = "seven.json"
"""
FOLLOWED = [
    path
    for path in pages(ROOT)
    if str(path.relative_to(ROOT)) not in ELSEWHERE
    and any(block.runs for block in parse_blocks(path.read_text(encoding="utf-8")))
]


def make_name(path):
    return str(path.relative_to(ROOT))


@pytest.fixture(scope="session")
def prepared_folder(tmp_path_factory):
    """Return a folder with files under the names that pages use."""
    folder = tmp_path_factory.mktemp("reader")
    for name in ("programs", "docs"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "images").symlink_to(DIGITS / "images")
    compiled = nmpsim.compile(DIGITS / "digits.lir.txt", DIGITS / "digits.npz")
    for name in ("digits.bin", "NET.bin", "net.bin"):
        nmpsim.save(compiled, folder / name)
    copies = {
        "NET.lir": "digits.lir.txt",
        "NET.lir.txt": "digits.lir.txt",
        "NET.tensors.json": "digits.tensors.json",
        "T.json": "digits.tensors.json",
        "W.npz": "digits.npz",
        "F.npz": "float_weights.npz",
        "float_weights.npz": "float_weights.npz",
        "X.npy": "images/7.npy",
        "7.npy": "images/7.npy",
    }
    for name, source in copies.items():
        shutil.copy(DIGITS / source, folder / name)
    (folder / "model.tflite").write_bytes(small_network(dtype="UINT8", depth=3))
    (folder / "stream.tflite").write_bytes(streaming_network())
    for name in ("a.npy", "b.npy"):
        np.save(folder / name, np.zeros((1, 2, 1, 4), np.int8))
    (folder / "photos").mkdir()
    for name in ("photo.png", "photos/0.png", "photos/1.png"):
        Image.new("RGB", (4, 4), (10, 20, 30)).save(folder / name)
    np.save(folder / "image.npy", np.zeros((1, 4, 4, 3), np.uint8))
    shutil.copy(ROOT / "tests/fuzz/corpus/onnx/small-qdq.onnx", folder / "network.onnx")
    np.save(folder / "picture.npy", np.zeros((1, 2, 4, 4), np.uint8))
    for engine in ("qnnpack", "onednn", "fbgemm"):
        compiled = nmpsim.compile(lower_recording(record_half_bias(engine)))
        nmpsim.save(compiled, folder / f"{engine}.bin")
    np.savez(folder / "expected.npz", output=np.full((1, 2, 3, 3), 0.5, np.float32))
    np.save(folder / "ones.npy", np.ones((1, 5, 5, 5), np.float32))
    (folder / "suite.toml").write_text(SUITE, encoding="utf-8")
    one = [folder / "NET.bin", "--input", folder / "X.npy"]
    kept = ["--save-layers", folder / "reference.npz", "--save-outputs", folder / "answer.npz"]
    for name in ("RUN.json", "BEFORE.json", "AFTER.json"):
        run_well("run", *one, *kept, "--format", "json", "-o", folder / name)
    np.savez(folder / "x.npz", data=np.load(folder / "X.npy"))
    right = dict(np.load(folder / "reference.npz"))
    right["0010:conv2__2"] = right["0010:conv2__2"] ^ 8
    np.savez(folder / "right.npz", **right)
    run_well("check", *one, "--baseline", folder / "seven.json", "--update-baseline")
    return folder


def run_well(*words):
    code, said = run_here(words)
    assert code == 0, said


@pytest.fixture
def folder(prepared_folder, tmp_path, monkeypatch):
    """Copy the prepared folder, make it current, and put nmpsim and python3 on PATH."""
    shutil.copytree(prepared_folder, tmp_path / "reader", symlinks=True)
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, module in (("nmpsim", "-m nmpsim "), ("python3", "")):
        call = f'PYTHONPATH="{ROOT}" exec "{sys.executable}" {module}"$@"'
        (commands / name).write_text(f"#!/bin/sh\n{call}\n", encoding="utf-8")
        (commands / name).chmod(0o755)
    monkeypatch.chdir(tmp_path / "reader")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PATH", f"{commands}{os.pathsep}{os.environ['PATH']}")
    return tmp_path / "reader"


@pytest.fixture
def names():
    """Return the names that Python blocks of pages use without defining them."""
    bundle = nmpsim.load("NET.bin")
    device = nmpsim.Device(nmpsim.get_device(bundle))
    x = np.load("X.npy")
    inputs = {"data": x}
    return {
        "nmpsim": nmpsim,
        "np": np,
        "bundle": bundle,
        "device": device,
        "x": x,
        "inputs": inputs,
        "report": device.run(bundle, inputs),
    }


SLOW = ("docs/tutorials/compare-tilings.md", "docs/sweep.md", "docs/howto/another-device.md")


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=pytest.mark.slow if make_name(path) in SLOW else ())
        for path in FOLLOWED
    ],
    ids=make_name,
)
def test_a_page_can_be_followed(path, folder, names):
    said = ""
    for block in parse_blocks(path.read_text(encoding="utf-8")):
        if block.remark == "output":
            check_output(block, said)
        elif block.runs:
            said = run_block(block, names, make_name(path), os.environ["PATH"])


@pytest.mark.parametrize("path", pages(ROOT), ids=make_name)
def test_command_lines_have_known_options(path):
    from nmpsim.cli.app import COMMANDS, app

    for line in command_lines(path.read_text(encoding="utf-8")):
        words = line.split()
        if words[1].startswith("-") or words[1] in ("...", "COMMAND"):
            continue
        assert words[1] in COMMANDS, line
        parameters = app.get_command(None, words[1]).params
        options = {option for one in parameters for option in (*one.opts, *one.secondary_opts)}
        named = re.findall(r"(?<=[ \[])(--[\w-]+|-\w)(?=[ =\]]|$)", line.split(" # ")[0])
        assert set(named) <= options | {"--help", "-h"}, line


OPTIONS_OF_OTHER_PROGRAMS = {
    "docs/campaigns.md",  # tests.campaign, tests.fuzz, pytest
    "docs/graph.md",  # model-explorer
    "docs/howto/bundle-with-binutils.md",
    "docs/mutation.md",
    "docs/pytest.md",
    "docs/speed.md",  # benchmarks
    "programs/ci/README.md",  # pytest
}
KNOWN_OPTIONS = {"--help", "--version", "--debug", "--dist", "--only-section", "--list"}


@pytest.mark.parametrize("path", pages(ROOT), ids=make_name)
def test_tables_and_sentences_name_known_options(path):
    from nmpsim.cli.app import COMMANDS, app

    if make_name(path) in OPTIONS_OF_OTHER_PROGRAMS:
        return
    parameters = [one for name in COMMANDS for one in app.get_command(None, name).params]
    known = {option for one in parameters for option in (*one.opts, *one.secondary_opts)}
    named = re.findall(r"(?<![\w-])--[a-z][\w-]+", path.read_text(encoding="utf-8"))
    assert set(named) <= known | KNOWN_OPTIONS


def test_command_lines_fit_the_site():
    for path in pages(ROOT):
        for block in parse_blocks(path.read_text(encoding="utf-8")):
            if block.language == "sh" and path.name != "README.md":
                assert max(map(len, block.text.splitlines())) <= 80, make_name(path)


def test_excluded_blocks_give_a_reason():
    for path in pages(ROOT):
        for block in parse_blocks(path.read_text(encoding="utf-8")):
            if block.remark.startswith("not run"):
                assert len(block.remark.removeprefix("not run: ")) > 10, make_name(path)


def test_a_wrong_command_line_is_found(folder, names):
    page = "```sh\nnmpsim run NET.bin --input missing.npy\n```\n"
    (block,) = parse_blocks(page)
    with pytest.raises(AssertionError, match="FILE001"):
        run_block(block, names, "page", os.environ["PATH"])
    (block,) = parse_blocks(page.replace("\n```\n", "   # exit code 2\n```\n"))
    run_block(block, names, "page", os.environ["PATH"])


def test_the_shell_runs_pipes(folder, names):
    (block,) = parse_blocks("```sh\nnmpsim device | grep cores\n```\n")
    run_block(block, names, "page", os.environ["PATH"])
    assert subprocess.run(["nmpsim", "--version"], check=True, capture_output=True).stdout


def find_missing_names(source):
    """Yield attributes of `nmpsim`, and of calls of its classes, that do not exist."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Attribute):
            continue
        owner = node.value
        if isinstance(owner, ast.Name) and owner.id == "nmpsim":
            target = nmpsim
        elif isinstance(owner, ast.Call) and ast.unparse(owner.func).startswith("nmpsim."):
            target = getattr(nmpsim, ast.unparse(owner.func).removeprefix("nmpsim."), None)
            if not isinstance(target, type):  # the result of a function
                continue
            fields = {field.name for field in attrs.fields(target)} if attrs.has(target) else set()
            if node.attr in fields:
                continue
        else:
            continue
        if not hasattr(target, node.attr):
            yield ast.unparse(node)


@pytest.mark.parametrize("path", pages(ROOT), ids=make_name)
def test_python_blocks_name_what_exists(path):
    for block in parse_blocks(path.read_text(encoding="utf-8")):
        if block.language == "python":
            assert list(find_missing_names(block.text)) == []


def test_a_missing_method_of_a_python_block_is_found():
    assert list(find_missing_names("nmpsim.Shadow(b).beside(r, x)")) == ["nmpsim.Shadow(b).beside"]
    assert list(find_missing_names("nmpsim.device_of(4)")) == ["nmpsim.device_of"]
