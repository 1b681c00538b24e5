"""Examples of pages give the results that the pages state."""

import re
import shutil
from pathlib import Path

import attrs
import numpy as np
import pytest
from page_blocks import check_output, parse_blocks, run_here

import nmpsim
from nmpsim.bundle import parse_bundle
from nmpsim.bundle.assembly import assemble

LOAD_4096 = """
.input  block, i8[S:1.0 O:0]<4096>      # read-write memory begins where a DRAM row does
.output cycles, i32[S:1.0 O:0]<1>
.layer  0, load, load, cycles

load_block: .descriptor load, layer=0, dram=block, spm=0x20000000, \\
    run_bytes=4096, count_x=1, count_y=1

_start:
    la      t0, load_block
    la      t1, cycles
    csrr    t2, mcycle
    nmp.load t0
    nmp.wait load, 0
    csrr    t3, mcycle
    sub     t3, t3, t2
    sw      t3, 0(t1)
    nmp.halt
"""


@pytest.mark.parametrize("engine", ["compiled", "reference"])
def test_the_example_of_the_timing_page(page, engine):
    text = " ".join(page("docs/timing.md").split())
    (transfer,) = re.findall(r"= (\d+) cycles from its issue\.", text)
    (sums,) = re.findall(r"differ by (.*?) cycles\.", text)
    read, descriptor, load, wait = map(int, re.findall(r"(\d+)(?= \(| \+| =)", sums))
    between = int(sums.split("= ")[1])
    config = attrs.evolve(nmpsim.default_device(), cores_count=1)
    bundle = parse_bundle(assemble(LOAD_4096, "load.s", config.settings()).build_bundle(), "load")
    block = next(t for t in bundle.metadata.inputs if t.name == "block")

    report = nmpsim.Device(config, engine).run(bundle, {"block": np.zeros(4096, np.int8)})

    assert block.address % config.dram_row_bytes == 0
    assert report.trap is None
    assert load == int(transfer)
    assert descriptor == config.control_descriptor_cycles
    assert (read, wait) == (1, 1)
    assert between == read + descriptor + load + wait
    assert report.outputs["cycles"].tolist() == [between]


def test_the_python_of_the_readme(page, repository, tmp_path, monkeypatch):
    (example,) = re.findall(r"```python\n(.*?)```", page("README.md"), re.S)
    programs = tmp_path / "programs"
    programs.mkdir()
    shutil.copytree(repository / "programs" / "digits", programs / "digits")
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(compile(example, "README.md", "exec"), names)
    assert names["report"].outputs["prob__1"].argmax() == 7
    assert (tmp_path / "digits.bin").exists()


def test_the_readme_and_the_program_say_the_same_of_the_first_run(page):
    from nmpsim.views import progress

    said = "up to a minute"
    assert said in " ".join(page("README.md").split())
    assert said in " ".join(str(value) for value in vars(progress).values())


def test_the_readme_shows_what_its_first_line_prints(page, repository, tmp_path, monkeypatch):
    (block,) = (block for block in parse_blocks(page("README.md")) if block.remark == "output")
    monkeypatch.chdir(repository)
    digits, bundle = Path("programs/digits"), tmp_path / "digits.bin"
    weights = ["--weights", digits / "digits.npz"]
    assert run_here(["compile", digits / "digits.lir.txt", *weights, "-o", bundle])[0] == 0
    code, said = run_here(["run", bundle, "--input", digits / "images" / "7.npy"])
    assert code == 0
    check_output(block, said)
