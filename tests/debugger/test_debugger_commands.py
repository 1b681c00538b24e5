"""Commands as a user types them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import nmpsim
from nmpsim.bundle import Bundle
from nmpsim.debugger import Debugger
from nmpsim.debugger.commands.shell import COMMANDS, Shell
from nmpsim.diagnostics import UserError


class ArrayFile:
    """Reader of a valid ``.npz`` file."""

    def __init__(self, path: Path) -> None:
        with np.load(path) as file:
            self._arrays = dict(file)

    @property
    def keys(self) -> list[str]:
        return list(self._arrays)

    def read(self, key: str) -> npt.NDArray[Any]:
        return self._arrays[key]


@pytest.fixture
def shell(debugger: Debugger) -> Shell:
    return Shell(debugger, ArrayFile)


@pytest.fixture
def saved(digits: Bundle, seven: dict[str, Any], tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    device = nmpsim.Device(nmpsim.get_device(digits))
    outputs = dict(device.run(digits, seven, save_layers=True).layer_outputs)
    path = tmp_path / "saved layers.npz"
    np.savez(path, **outputs)
    return path, outputs


def test_every_command_has_help_and_answers_plain_data(shell: Shell) -> None:
    for command in COMMANDS:
        assert command.summary in shell.execute(f"help {command.name}").text
    lines = ["where", "layers", "layer conv1", "tensor data", "tensor data 0 0 3 3", "saturation"]
    lines += ["cores", "registers 3", "memory 0x20000000 20", "code", "source", "breakpoints"]
    for line in [*lines, "step 2", *lines, "help", "until end", *lines]:
        result = shell.execute(line)
        assert result.lines
        json.dumps(result.data, allow_nan=False)


def test_a_layer_shows_its_limiting_resource(shell: Shell) -> None:
    shell.execute("until layer conv2")
    found = shell.execute("layer conv2")
    data = found.data
    assert sum(data["critical_path"].values()) == data["cycles"]
    assert f"  {data['limits']}; {data['queueing']} cycles queued" in found.text
    assert f"  critical path mac {data['critical_path']['mac']}, " in found.text
    assert shell.execute("layer fc").data["critical_path"] == {}, "it has not run"
    assert "on the host: " in shell.execute("layer prob").text
    assert "cycles not counted" not in shell.execute("layer prob").text
    states = shell.execute("layers").data["layers"]
    assert [bool(state["critical_path"]) for state in states] == [0 < i < 4 for i in range(8)]


def test_the_critical_path_is_known_after_an_interruption(shell: Shell) -> None:
    debugger = shell.debugger
    debugger.replay(300)  # as if Ctrl-C had come before anybody looked at it
    shell.execute("until end")
    report = debugger.report()
    assert sum(report.critical_path.values()) == report.device_cycles
    shell.execute("restart")
    assert not sum(debugger.report().critical_path.values())


def test_completion_offers_commands_layers_and_words(shell: Shell) -> None:
    assert "continue" in shell.complete("con")
    assert shell.complete("layer conv2") == ["conv2__2"]
    assert "saturation" in shell.complete("break sat")
    assert shell.complete("nonsense x") == []
    assert "step" in shell.complete("")


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("frobnicate", "DEBUG001"),
        ("step sideways", "DEBUG001"),
        ("step -1", "DEBUG001"),
        ("layer nothing", "LAYER001"),
        ("tensor conv1 1 2", "DEBUG002"),
        ("memory 0x5 4", "DEBUG002"),
        ("memory 0x20000000 99999999999", "DEBUG002"),
        ("registers 99", "DEBUG002"),
        ("delete 7", "DEBUG002"),
        ("compare", "DEBUG002"),
        ("break result sideways", "DEBUG001"),
        ('tensor "conv1', "DEBUG001"),
        ("watch", "DEBUG001"),
        ("break cycle 5 if", "DEBUG001"),
        ("break cycle 5 if cycle >", "DEBUG001"),
        ("break hazard if differing > 1", "DEBUG002"),
        ("watch data if value(nothing) > 1", "LAYER001"),
    ],
)
def test_wrong_commands_are_explained_and_change_nothing(
    shell: Shell, line: str, code: str
) -> None:
    with pytest.raises(UserError) as error:
        shell.execute(line)
    assert error.value.diagnostics[0].code == code
    assert shell.execute("continue").data["reason"] == "end"


def test_watchpoints_name_the_writer(shell: Shell) -> None:
    shell.execute("watch pool1 0 3 3 2")
    stopped = shell.execute("continue")
    (hit,) = stopped.data["hits"]
    assert "nmp.store" in hit["text"]
    before = shell.execute("back tensor").data["location"]["position"]
    assert before < stopped.data["location"]["position"]
    assert shell.execute("continue").data["hits"][0]["text"] == hit["text"]


def test_breakpoints_and_watchpoints_take_a_condition(shell: Shell) -> None:
    shell.execute("break stall > 20 if cycle > 1000 and register(0, pc) > 0")
    shell.execute("watch pool1 if value(pool1, 0, 3, 3, 2) != 0")
    stops = []
    while (stopped := shell.execute("continue")).data["reason"] == "breakpoint":
        for hit in stopped.data["hits"]:
            stops.append((hit["breakpoint"], shell.execute("eval cycle").data["value"]))
    assert {1, 2} == {number for number, _ in stops}
    assert all(cycle > 1000 for number, cycle in stops if number == 1)
    listed = shell.execute("breakpoints").text
    assert "stall > 20 if cycle > 1000 and register(0, pc) > 0" in listed
    assert "write of pool1__1_res if value(pool1, 0, 3, 3, 2) != 0" in listed


def test_a_stall_and_a_saturation_stop_exactly_there(shell: Shell) -> None:
    shell.execute("break stall on core 3 > 300")
    text = shell.execute("continue").data["hits"][0]["text"]
    assert text.startswith("core 3 waited ")
    assert int(text.split()[3]) > 300
    shell.execute("delete")
    assert shell.execute("continue").data["reason"] == "end"


def test_a_reference_finds_the_faulty_layer(
    shell: Shell, saved: tuple[Path, dict[str, Any]]
) -> None:
    path, outputs = saved
    shell.execute(f'reference "{path}"')
    shell.execute("until end")
    assert shell.execute("compare isolated").data["differing"] == 0
    # What the reference says of a pool is moved: the pool breaks, what follows inherits.
    for key, values in outputs.items():
        if "pool1" in key:
            values[0, 0, 0, 0] += 1
    np.savez(path, **outputs)
    shell.execute(f'reference "{path}"')
    found = shell.execute("compare isolated").data
    assert found["first"] == "pool1__2"
    assert found["breaking"] == ["pool1__2", "conv2__2"] or found["breaking"] == ["pool1__2"]
    shell.execute("restart")
    shell.execute("break result differs from reference")
    assert "pool1__2 differs in 1 element" in shell.execute("continue").data["hits"][0]["text"]
    assert "wrong in isolation too" in shell.execute("diverge").data["verdict"]


def test_compiled_programs_have_no_hazards(shell: Shell) -> None:
    shell.execute("break hazard")
    assert shell.execute("continue").data["reason"] == "end"
    assert shell.execute("eval hazards").data["value"] == 0


def test_a_finished_run_suggests_commands(shell: Shell) -> None:
    assert "has ended" not in shell.execute("continue").text
    assert "use `restart`" in shell.execute("continue").text


def test_expectations_determine_the_exit_code(shell: Shell) -> None:
    shell.execute("until end")
    assert not shell.execute("expect cycles > 100 and saturation(conv1) == 0").is_worse
    assert shell.execute("expect layers_done == 1").is_worse
    assert shell.execute("eval value(prob__1, 0, 7) > 0.5").data["value"] == 1
