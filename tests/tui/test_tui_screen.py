"""The debugger's screen, driven by its keys."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from screen import LARGE, SMALL, Start, User, drive

from nmpsim.debugger.commands.results import CommandResult
from nmpsim.debugger.commands.shell import Shell
from nmpsim.tui.app import DebugApp
from nmpsim.tui.key_bindings import KEY_COMMANDS, list_key_actions
from nmpsim.tui.panes import PANES
from nmpsim.tui.theme import ASCII, UNICODE
from nmpsim.tui.view import ScreenState, make_first_view


def test_a_small_screen_shows_one_pane(start: Start) -> None:
    async def play(user: User) -> None:
        text = user.text()
        assert "▶  [0] conv1__6_quantize" in text
        assert "LIR source" not in text
        for number, (name, kind) in enumerate(PANES, 1):
            assert f" {number} {name} " in text
            shown = await user.press(str(number))
            assert user.app.active_pane.size.height == 18
            assert kind.title.split()[0] in shown
            assert [pane for pane in user.app.panes if pane.display] == [user.app.active_pane]

    drive(start(), SMALL, play)


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_tab_goes_through_all_panes(size: tuple[int, int], start: Start) -> None:
    async def play(user: User) -> None:
        seen = []
        for _ in PANES:
            await user.press("tab")
            assert user.app.focused is user.app.active_pane
            seen.append(user.app.active_pane.title)
        assert seen == [kind.title for _, kind in (*PANES[1:], PANES[0])]
        await user.press("shift+tab")
        assert user.app.active_pane.title == "Log"

    drive(start(), size, play)


def test_a_large_screen_shows_all_panes(start: Start) -> None:
    async def play(user: User) -> None:
        text = await user.press("n", "n")
        assert all(pane.display and pane.size.area > 300 for pane in user.app.panes)
        assert text.count("conv1__2") >= 4  # layers, source, tensor, time
        assert "1 Layers" not in text
        assert "Layers, critical path: " in text and "3 host layers, 84 elements, 903" in text
        report = user.app.shell.debugger.report().layers[1]
        assert f"Time, layer 1: DRAM busy {report.use.dram_busy:.1%}, MAC" in text
        zoomed = await user.press("z")
        assert "1 Layers" in zoomed
        assert "MAC arrays 35%" in zoomed
        assert sum(pane.display for pane in user.app.panes) == 1

    drive(start(), LARGE, play)


def test_steps_go_forwards_and_backwards(start: Start) -> None:
    async def play(user: User) -> None:
        text = await user.press("n", "n")
        assert "layer 2 pool1__2  2/8 done" in text
        cycle = user.app.shell.debugger.cycle
        assert f"cycle {cycle:,}" in text
        assert "✓  [1] conv1__2" in text
        await user.press("t", "i", "s")
        assert user.app.shell.debugger.cycle > cycle
        await user.press("S", "I", "T")
        assert user.app.shell.debugger.cycle <= cycle
        assert "8/8 done" in await user.press("c")
        assert "the end: cycle" in user.text()
        assert "layer 0 conv1__6_quantize  0/8 done" in await user.press("R")

    drive(start(), SMALL, play)


def test_keys_before_the_first_view_are_kept(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    may_show = threading.Event()

    def late(shell: Shell) -> ScreenState:
        may_show.wait()
        return make_first_view(shell)

    async def run() -> DebugApp:
        app = DebugApp(start(), UNICODE)
        async with app.run_test(size=LARGE) as pilot:
            await pilot.press("n", "n")
            may_show.set()
            await User(app, pilot).settle()
            await User(app, pilot).settle()  # the keys
        return app

    monkeypatch.setattr("nmpsim.tui.app.make_first_view", late)
    assert asyncio.run(run()).current_view.location.layers_done == 2


def test_a_breakpoint_is_set_shown_and_hit(start: Start) -> None:
    async def play(user: User) -> None:
        await user.press("down", "down", "down", "b", "c")
        assert "layer 3 conv2__2  3/8 done" in user.text()
        assert "breakpoint 1: conv2__2 begins" in user.text()
        assert "●▶  26" in await user.press("2")
        await user.press("1", "down", "b")
        assert user.app.active_pane.cursor == 4
        assert "8/8 done" in await user.press("b", "up", "b", "c")

    drive(start(), SMALL, play)


def test_a_breakpoint_at_an_address_is_set(start: Start) -> None:
    async def play(user: User) -> None:
        await user.press("n", "5")
        found = await user.enter("/nmp.conv")
        assert "nmp.conv t0" in found
        await user.press("b", "c")
        assert "breakpoint 1: core" in user.text()
        core = user.app.shell.debugger.machine.cores[user.app.view.core]
        assert f"●▶ {int(core.pc):08x}  nmp.conv t0" in user.text()

    drive(start(), SMALL, play)


def test_selected_layers_are_shown(start: Start) -> None:
    async def play(user: User) -> None:
        await user.press("c", "home", "down", "enter")
        text = await user.press("3")
        assert "conv1__2_res  1x8x8x16 Int8, 0 to 3.3694" in text
        assert "channel 0 of 16: -128 to -86  ▲ 0 at 127  ▼ 32 at -128" in text
        assert "channel 15 of 16" in await user.press("left_square_bracket")
        assert "-128▼" in await user.press("v")
        assert "range -128 ▼" in await user.press("v")
        assert "activation  ▼ low" in await user.press("4")

    drive(start(), SMALL, play)


def test_the_time_line_zooms_and_scrolls(start: Start) -> None:
    async def play(user: User) -> None:
        text = await user.press("n", "n", "n", "8")
        fitted = user.app.active_pane.virtual_size.width
        assert fitted <= 78
        assert "dram" in text and "0 mac" in text and "│1 conv1__2" in text
        await user.press("plus", "plus")
        assert user.app.active_pane.virtual_size.width > 2 * fitted
        before = await user.press("home")
        assert await user.press(*["right"] * 8) != before
        await user.press("f")
        assert user.app.active_pane.virtual_size.width == fitted

    drive(start(), SMALL, play)


def test_the_mouse_does_what_keys_do(start: Start) -> None:
    async def play(user: User) -> None:
        await user.pilot.click("#tabs", offset=(14, 0))
        assert user.app.active_pane.title == "LIR source"
        await user.pilot.click("#tabs", offset=(3, 0))
        await user.pilot.click("LayersPane", offset=(10, 5), times=2)
        await user.settle()
        assert user.app.view is not None and user.app.view.layer == 3
        await user.pilot.click("#keys", offset=(3, 0))
        await user.settle()
        assert "1/8 done" in user.text()

    drive(start(), SMALL, play)


def test_search_goes_around(start: Start) -> None:
    async def play(user: User) -> None:
        await user.press("2")
        await user.enter("/softmax")
        first = user.app.active_pane.cursor
        assert "softmax" in user.app.active_pane.make_line(first, 80).plain
        await user.press("full_stop")
        assert user.app.active_pane.cursor == first
        await user.enter("/DEALLOC")
        second = user.app.active_pane.cursor
        await user.press("full_stop", "comma")
        assert user.app.active_pane.cursor == second
        assert "not found" in await user.enter("/no such text")
        assert user.app.active_pane.cursor == second

    drive(start(), SMALL, play)


def test_a_view_is_copied_to_a_file(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "a file.txt"

    async def play(user: User) -> None:
        await user.press("n")
        await user.enter(f">{file}")
        await user.enter(f">{tmp_path / 'no folder' / 'x'}")
        assert "error[FILE002]" in await user.press("9")

    drive(start(), SMALL, play)
    lines = file.read_text(encoding="utf-8").splitlines()
    assert len(lines) == 10
    assert re.search(r"prob +softmax +host", lines[-1])


@pytest.mark.parametrize("size", [SMALL, pytest.param(LARGE, marks=pytest.mark.slow)])
def test_help_has_every_key(size: tuple[int, int], start: Start) -> None:
    async def play(user: User) -> None:
        assert "Everywhere" in await user.press("2", "question_mark")
        text = "\n".join(user.app.active_pane.list_plain_lines())
        for move in KEY_COMMANDS:
            assert f"  {move.key:<22}{move.description}" in text
        assert "step instruction core CORE over" in text and "{core}" not in text
        for words in (
            "Fewer cycles per column",
            "Next channel",
            "Earlier command",
            "Quit",
            "reverse",
        ):
            assert words in text
        assert "reverse " in await user.enter("/reverse ")
        for key in ("escape", "q", "question_mark"):
            assert "Everywhere" not in await user.press(key)
            assert user.app.active_pane.title == "LIR source"
            await user.press("question_mark")
        assert "Everywhere" not in await user.press("1")

    drive(start(), size, play)


def test_a_finished_layer_is_shown(start: Start) -> None:
    async def play(user: User) -> None:
        assert "conv1__2_res  1x8x8x16" in await user.press("n", "n", "3")
        assert user.app.view is not None and user.app.view.layer == 1
        await user.press("s")
        assert user.app.view.layer == 2
        await user.press("N")
        assert user.app.view.layer == 1
        await user.enter("layer conv2__2")
        assert user.app.view.layer == 3
        await user.enter("break layer pool2__2")
        await user.press("c")
        assert user.app.view.layer == 4

    drive(start(), SMALL, play)


def test_every_key_has_one_meaning_and_a_description() -> None:
    from nmpsim.tui.key_bindings import list_key_actions
    from nmpsim.tui.line_pane import LinePane

    everywhere = [key for keys, _, _ in list_key_actions(DebugApp.BINDINGS) for key in keys.split()]
    assert len(everywhere) == len(set(everywhere))
    for kind in [LinePane, *(kind for _, kind in PANES if "BINDINGS" in kind.__dict__)]:
        for keys, description, _ in list_key_actions(kind.BINDINGS):
            assert description
            assert not set(keys.split()) & set(everywhere)


def test_keys_before_anything_is_shown_do_no_harm(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell = start()
    go = threading.Event()
    monkeypatch.setattr(
        "nmpsim.tui.app.make_first_view", lambda shell: go.wait() and make_first_view(shell)
    )

    async def run() -> None:
        app = DebugApp(shell, UNICODE)
        async with app.run_test(size=SMALL) as pilot:
            for number in range(1, len(PANES) + 1):
                await pilot.press(str(number), "end", "enter", "b", "v", "p", "m", "l", "plus", "f")
            go.set()
            user = User(app, pilot)
            await user.settle()
            assert "0/8 done" in user.text()

    asyncio.run(run())


def test_the_command_line_has_a_history(start: Start) -> None:
    async def play(user: User) -> None:
        await user.enter("/conv")
        await user.enter("/pool")
        await user.press("colon", "up", "up")
        assert user.app.focused is not None
        assert user.app.focused.value == "/conv"
        await user.press("escape")
        assert user.app.focused is user.app.active_pane

    drive(start(), SMALL, play)


def test_without_unicode_there_are_other_symbols(start: Start) -> None:
    async def play(user: User) -> None:
        text = await user.press("n", "n")
        assert ">   2  pool1__2" in text
        assert "+  [1] conv1__2" in text

    drive(start(), SMALL, play, ASCII)


@pytest.mark.parametrize("size", [pytest.param(SMALL, marks=pytest.mark.slow), LARGE])
def test_lenet_runs_to_its_end_and_back(
    size: tuple[int, int], lenet: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    shell = lenet()
    layers = len(shell.debugger.layers)

    async def play(user: User) -> None:
        assert f"{layers}/{layers} done" in await user.press("n", "n", "c")
        await user.press("3", "8", "1")
        assert f"{layers - 2}/{layers} done" in await user.press("N", "N")
        assert f"0/{layers} done" in await user.press("C")

    drive(shell, size, play)


def test_no_color_means_none(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    async def play(user: User) -> None:
        await user.press("n", "n", "3")
        strips = user.app.screen._compositor.render_strips()
        styles = [segment.style for strip in strips for segment in strip if segment.style]
        assert all(c is None or c.is_default for s in styles for c in (s.color, s.bgcolor))
        assert any(style.reverse for style in styles)

    drive(start(), LARGE, play)


def test_commands_are_typed_and_answered(start: Start) -> None:
    async def play(user: User) -> None:
        text = await user.enter("cores")
        assert user.app.active_pane.title == "Log"
        assert "> cores" in text
        assert "layer 2 pool1__2" in await user.enter("until layer conv1__2")
        assert "the command 'flyy' is unknown" in await user.enter("flyy")
        assert "2/8 done" in user.text()
        await user.enter("break layer conv2__2")
        assert "breakpoint 1: conv2__2 begins" in await user.enter(":continue")
        assert user.app.shell.history == [
            "cores", "until layer conv1__2", "break layer conv2__2", "continue",
        ]  # fmt: skip
        await user.enter("quit")
        assert not user.app.is_running

    drive(start(), SMALL, play)


def test_commands_are_completed(start: Start) -> None:
    async def play(user: User) -> None:
        await user.press("colon", *"rest", "tab")
        assert user.app.focused.value == "restart"
        user.app.focused.value = ""
        await user.press(*"layer", "space", *"conv2", "tab")
        assert user.app.focused.value == "layer conv2__2"
        await user.press("enter")
        assert "> layer conv2__2" in user.text()

    drive(start(), SMALL, play)


def test_layers_are_compared_with_a_reference(start: Start, tmp_path: Path) -> None:
    shell = start()
    shell.debugger.run()
    debugger = shell.debugger
    outputs = {layer.name: debugger.layer_outputs[layer.index].copy() for layer in debugger.layers}
    outputs["pool1__2"].flat[:3] += 2
    debugger.restart()
    np.savez(tmp_path / "reference.npz", **outputs)
    shell.load_reference(tmp_path / "reference.npz")

    async def play(user: User) -> None:
        assert "reference" in user.text()
        text = await user.press("n", "n", "n")
        assert re.search(r"conv1__2 .* = equal", text)
        assert re.search(r"pool1__2 .* ≠ 3 by 2", text)

    drive(shell, SMALL, play)


@pytest.mark.parametrize("key", ["escape", "ctrl+c"])
def test_a_run_can_be_interrupted_on_the_screen(
    key: str, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell = start()
    execute = shell.execute

    def endless(line: str) -> CommandResult:
        while not shell.debugger.is_interrupted():
            time.sleep(0.001)
        return execute(line)

    monkeypatch.setattr(shell, "execute", endless)

    async def play(user: User) -> None:
        await user.pilot.press("c", "n", "2")
        assert user.app.is_busy
        await user.pilot.pause(0.15)
        assert "continue [----------] Esc stops" in user.text()
        assert user.app.active_pane.title == "LIR source"
        assert "interrupted" in await user.press(key)
        assert "step layer" not in user.app.shell.history

    drive(shell, SMALL, play)


def test_an_error_of_nmpsim_itself_ends_the_screen(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell = start()

    def broken(line: str) -> CommandResult:
        raise ZeroDivisionError(line)

    monkeypatch.setattr(shell, "execute", broken)

    async def play(user: User) -> None:
        await user.pilot.press("n")
        await user.pilot.pause(0.1)

    app = drive(shell, SMALL, play)
    assert isinstance(app.failure, ZeroDivisionError)


def test_the_scrollbar_follows_the_log(start: Start) -> None:
    async def play(user: User) -> None:
        log = user.app.panes[-1]
        await user.press("n", "n", "a")
        before = log.virtual_size.height
        await user.press("a")
        assert log.virtual_size.height > before
        assert log.vertical_scrollbar.window_virtual_size == log.virtual_size.height

    drive(start(), LARGE, play)


@pytest.mark.parametrize(
    ("typed", "description"),
    [("saturation", "Pane Satur: Saturation"), ("filter", "Filter layers")],
)
def test_the_command_palette_finds_actions(typed: str, description: str, start: Start) -> None:
    async def play(user: User) -> None:
        await user.press("ctrl+p", *typed)
        await user.wait_until(lambda: description in user.text())

    drive(start(), SMALL, play)


def test_the_slowest_layer_is_selected_at_the_end(start: Start) -> None:
    async def play(user: User) -> None:
        await user.press("c")
        view = user.app.current_view
        assert view.layers[view.layer].cycles == max(layer.cycles for layer in view.layers) > 0
        await user.press("home", "enter", "c")
        assert user.app.current_view.layer == 0, "the run has not moved"

    drive(start(), SMALL, play)


def test_the_command_palette_lists_keys_of_a_pane(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    async def play(user: User) -> None:
        await user.press("3", "ctrl+p", *"next column")
        await user.wait_until(lambda: "Sort by the next column" in user.text())
        await user.press("down")
        strips = user.app.screen._compositor.render_strips()
        chosen = next(strip for strip in strips if "Sort by the next column" in strip.text)
        assert all(part.style and part.style.underline for part in chosen if part.text.strip())
        await user.press("enter", "enter")
        await user.wait_until(lambda: len(user.app.screen_stack) == 1)
        assert "by cycles" in await user.press("h")
        assert "Sort by the" in user.text()
        assert "weights, ..." in await user.press("3")
        assert "weights, ..." not in await user.press("h")

    drive(start(), SMALL, play)


def test_every_key_has_an_action() -> None:
    """A key's action is a method of the application or of the pane that declares the key."""
    for owner in (DebugApp, *(kind for _, kind in PANES)):
        for keys, _, action in list_key_actions(owner.__dict__.get("BINDINGS", ())):
            name = "action_" + action.partition("(")[0].removeprefix("app.")
            assert hasattr(owner, name) or hasattr(DebugApp, name), (owner.__name__, keys, action)
