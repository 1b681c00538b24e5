"""The Python of docs/html.md runs."""

import re

import numpy as np

import nmpsim
from nmpsim.report.json import format_json, to_json


def test_the_python_of_the_html_page(page, repository, tmp_path, monkeypatch):
    first, second = re.findall(r"```python\n(.*?)```", page("docs/html.md"), re.S)
    digits = repository / "programs" / "digits"
    nmpsim.save(
        nmpsim.compile(digits / "digits.lir.txt", digits / "digits.npz"), tmp_path / "d.bin"
    )
    bundle = nmpsim.load(tmp_path / "d.bin")
    device = nmpsim.Device()
    inputs = {"data": np.load(digits / "images" / "7.npy")}
    report = device.run(bundle, inputs)
    (tmp_path / "RUN.json").write_text(format_json(to_json(report)), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    names = {"device": device, "bundle": bundle, "inputs": inputs}
    exec(compile(first, "html.md", "exec"), names)
    assert "conv2__2" in (tmp_path / "RUN.html").read_text(encoding="utf-8")
    exec(compile(second, "html.md", "exec"), names)
    assert names["report"].timeline.spans
    assert [one.name for one in names["report"].histograms] == ["conv1__2"]
    assert names["report"].memory
    assert names["report"].scratchpads
