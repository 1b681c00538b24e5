"""Tensors on the screen: of a layer, by name, of the instruction that a core is at."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from screen import LARGE, SMALL, Start, User, drive

from nmpsim.debugger.inspect import count_saturation
from nmpsim.debugger.operands import OperandValues, read_layer_output
from nmpsim.tui.panes.tensor import TensorPane
from nmpsim.tui.tensor_planes import TensorPlanes


def pane(user: User) -> TensorPane:
    found = user.app.active_pane
    assert isinstance(found, TensorPane)
    return found


def test_a_key_cycles_through_tensors_of_a_layer(start: Start) -> None:
    async def play(user: User) -> None:
        text = await user.press("n", "n", "3")
        assert "[output] Src  Filter  Bias " in text
        text = await user.press("p")
        assert "1x8x8x1 Int8" in text, text
        text = await user.press("p")
        assert "16x3x3x1 Int8" in text and "channel 0 of 16" in text
        text = await user.press("p")
        assert "[Bias]" in text and "16 Int32" in text
        assert "[Filter]" in await user.press("P")
        assert "conv2_weights" in await user.press("n", "n")
        assert "[output]" in await user.press("n")

    drive(start(), SMALL, play)


def test_weights_equal_the_lir(start: Start) -> None:
    async def play(user: User) -> None:
        await user.press("n", "n", "3", "p", "p", "right_square_bracket", "down", "right", "right")
        weights = user.app.shell.get_module().constants["conv1_weights__1"]
        assert pane(user).get_element() == (1, 1, 2, 0)
        assert f"[1, 1, 2, 0] = {weights[1, 1, 2, 0]}, stands for" in user.text()

    drive(start(), SMALL, play)


def test_a_tensor_is_shown_by_its_name(start: Start) -> None:
    async def play(user: User) -> None:
        await user.press("n", "n")
        text = await user.enter("tensor conv2_bias")
        assert "[conv2_bias] output  Src" in text and "32 Int32" in text
        assert user.app.active_pane.title == "Layers"
        assert "data  " in await user.enter("tensor data")
        assert "[output]" in await user.press("n")
        bias = user.app.shell.get_module().constants["conv2_bias"]
        assert f"[3] = {bias[3]}, stands for" in await user.enter("tensor conv2_bias 3")

    drive(start(), LARGE, play)


def test_why_explains_the_selected_element(start: Start) -> None:
    async def play(user: User) -> None:
        await user.press("n", "n", "3", "down", "down", "right")
        assert pane(user).get_element() == (0, 2, 1, 0)
        output = read_layer_output(user.app.shell.debugger, user.app.shell.debugger.layers[1])
        assert f"[0, 2, 1, 0] = {output.values[0, 2, 1, 0]}" in user.text()
        text = await user.press("enter")
        assert "> why 1 0 2 1 0" in text and "conv1__2[0, 2, 1, 0]" in text
        assert user.app.shell.history[-1] == "why 1 0 2 1 0"
        await user.press("3", "p", "enter")
        assert "done" in user.text() and user.app.shell.history[-1] == "why 1 0 2 1 0"

    drive(start(), SMALL, play)


def test_saturated_elements_are_selected(start: Start) -> None:
    shell = start()

    async def play(user: User) -> None:
        await user.enter("change conv2 out_post 13")
        await user.enter("until layer conv2")
        await user.press("4")
        cut = user.app.active_pane
        first = count_saturation(shell.debugger, shell.debugger.layers[3])[0].first
        await user.press("home", "enter")
        assert pane(user).get_element() == first
        await user.press("4", "end")
        channel = int(cut.make_line(cut.cursor, 80).plain.split()[0])
        await user.press("enter")
        assert pane(user).get_element() == (0, 0, 0, channel)

    drive(shell, SMALL, play)


def test_the_mouse_selects_an_element(start: Start) -> None:
    async def play(user: User) -> None:
        await user.press("n", "n", "3")
        heading = len(pane(user).make_heading(78))
        await user.pilot.click("TensorPane", offset=(1 + 5 + 2 * 3, 1 + heading + 4))
        assert pane(user).get_element() == (0, 4, 3, 0)

    drive(start(), SMALL, play)


def test_operands_of_an_instruction_are_shown_and_placed(start: Start) -> None:
    async def play(user: User) -> None:
        await user.press("n", "5")
        await user.enter("/nmp.conv")
        await user.press("b", "c", "3")
        core = user.app.view.core if user.app.view is not None else -1
        roles = [one.role for one in pane(user)._choices]
        assert [f"core {core} {what}" for what in ("input", "weights", "channels", "output")] == [
            role for role in roles if role.startswith("core")
        ]
        assert f"[core {core} weights]" in await user.press("P", "P", "P")
        assert "current contents of memory" in user.text()
        text = await user.press("7", "m")
        assert "operands of nmp.conv at" in text and "reads  weights" in text
        assert "20000000 wwwcccci oooo " in text
        assert "DRAM" in await user.press("m")
        assert user.app.active_pane.cursor == 0

    drive(start(), SMALL, play)


def test_transfers_show_their_tensor(start: Start) -> None:
    async def play(user: User) -> None:
        text = await user.press("n", "i", "7", "m")
        assert re.search(r"operands of nmp.load at [0-9a-f]{8}, just done", text)
        assert re.search(r"writes conv1__\S+", text)

    drive(start(), SMALL, play)


def test_differences_from_a_reference_are_selected(start: Start, tmp_path: Path) -> None:
    shell = start()
    shell.debugger.run()
    outputs = {
        one.name: shell.debugger.layer_outputs[one.index].copy() for one in shell.debugger.layers
    }
    outputs["conv2__2"][0, 1, 2, 7] += 3
    outputs["conv2__2"][0, 3, 0, 7] += 1
    shell.debugger.restart()
    np.savez(tmp_path / "reference.npz", **outputs)
    shell.load_reference(tmp_path / "reference.npz")

    async def play(user: User) -> None:
        text = await user.press("d")
        assert "conv2__2 is the first layer that differs" in text
        assert user.app.active_pane.title == "Log"
        text = await user.press("3", "p")
        assert "[difference]" in text and "2 differ, by channel 7: 2" in text
        assert pane(user).get_element() == (0, 1, 2, 7)
        assert "[0, 1, 2, 7] = -3" in text
        assert "> why 3 0 1 2 7" in await user.press("enter")
        assert "≠ 2 by 3" in await user.press("1")
        assert "nothing differs" in await user.press("home", "down", "enter", "3")

    drive(shell, SMALL, play)


def test_planes_know_where_elements_are() -> None:
    for shape in ((), (5,), (4, 5), (3, 4, 5), (2, 3, 4, 5), (2, 3, 4, 1)):
        values = np.arange(int(np.prod(shape)), dtype=np.int32).reshape(shape)
        for is_channel_first in (False, True):
            planes = TensorPlanes(OperandValues("x", "i32", values), is_channel_first)
            for at in np.ndindex(planes.values.shape):
                there = planes.get_coordinates(*at)
                assert values[there] == planes.values[at]
                assert planes.has_element(there) and planes.find_position(there) == at
