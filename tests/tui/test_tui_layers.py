"""The list of layers: sorted, filtered, with names that differ; the cursor inverts no bars."""

from __future__ import annotations

from pathlib import Path

import attrs
import numpy as np
import pytest
from screen import SMALL, Start, User, drive, session

from nmpsim.bundle import Bundle
from nmpsim.debugger import LayerState
from nmpsim.diagnostics import UserError
from nmpsim.tui.panes.layers import LayerRow, make_filter, sort_rows

SEVEN = Path(__file__).parents[2] / "programs" / "digits" / "images" / "7.npy"
ROWS = [
    LayerRow(
        LayerState(
            index, name, name, op, operation, 0, "device", "done", cycles, saturated, 1, limit
        ),
        1.0,
        None,
    )
    for index, (name, op, operation, cycles, saturated, limit) in enumerate(
        [
            ("conv1__2", "convolution", "conv", 462, 0, "the MAC arrays 35%"),
            ("pool1__2", "maxpool", "maxpool", 230, 7, "the latency of transfers 38%"),
            ("conv2__2", "convolution", "conv", 900, 3, "DRAM bandwidth 60%"),
            ("prob", "softmax", "softmax", 0, 0, ""),
        ]
    )
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("", [0, 1, 2, 3]),
        ("conv*", [0, 2]),
        ("CONV", [0, 2]),
        ("conv* sat>0", [2]),
        ("sat > 0", [1, 2]),
        ("!conv", [1, 3]),
        ("op=maxpool", [1]),
        ("op!=maxpool", [0, 2, 3]),
        ("critical=dram", [2]),
        ("cycles>=462 cycles<900", [0]),
        ("layer<=1", [0, 1]),
        ("share=1%", [0, 1, 2, 3]),
        ("nothing", []),
    ],
)
def test_a_filter_selects_layers(text: str, left: list[int]) -> None:
    assert [row.state.index for row in ROWS if make_filter(text)(row)] == left


@pytest.mark.parametrize(
    ("text", "words"), [("colour>1", "cycles"), ("sat>many", "a number"), (">1", "no name")]
)
def test_an_invalid_filter_is_reported(text: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        make_filter(text)


@pytest.mark.parametrize(
    ("column", "first"),
    [("layer", [0, 1, 2, 3]), ("cycles", [2, 0, 1, 3]), ("saturated", [1, 2, 0, 3]),
     ("operation", [0, 2, 1, 3]), ("ulp", [0, 1, 2, 3])],
)  # fmt: skip
def test_layers_can_be_sorted(column: str, first: list[int]) -> None:
    assert [row.state.index for row in sort_rows(ROWS, column, is_reversed=False)] == first


def long_names(bundle: Bundle) -> Bundle:
    layers = bundle.metadata.layers
    named = [attrs.evolve(one, name=f"{'a_long_name/' * 5}block/conv_{one.index}_of/{'tail/' * 5}")
             for one in layers]  # fmt: skip
    return attrs.evolve(bundle, metadata=attrs.evolve(bundle.metadata, layers=tuple(named)))


def test_the_screen_lists_layers(digits: Bundle) -> None:
    async def play(user: User) -> None:
        text = user.text()
        assert "c runs it to the end" in text
        assert all(f"conv_{index}_" in text for index in range(8))
        await user.press("h")
        assert all(f"conv_{index}"[-4:] in user.text() for index in range(8)), "in a narrow pane"
        await user.press("h", "c")
        states = user.app.current_view.layers
        slowest = max(states, key=lambda one: one.cycles)
        text = user.text()
        assert f"most time [{slowest.index}] " in text and slowest.critical_path in text
        layers = user.app.active_pane
        await user.press("end", "right_square_bracket")
        assert "by cycles" in user.text()
        assert layers.get_target(0) == {"layer": slowest.index}
        assert layers.get_target(layers.cursor) == {"layer": 7}, "the cursor stays with its layer"
        await user.press("r")
        assert "by cycles, reversed" in user.text()
        assert layers.get_target(7) == {"layer": slowest.index}
        await user.enter("filter pool")
        assert "2 of 8: pool" in user.text() and layers.count_lines() == 2
        await user.press("enter")
        assert user.app.current_view.selected_layer.op == "maxpool"
        await user.press("f", *"none", "enter", "enter", "b", "end")
        assert "0 of 8: none" in user.text()
        await user.press("f", *"a>b", "enter")
        assert layers.count_lines() == 0
        assert any("unknown column in a filter" in one.plain for one in user.app.panes[-1].texts)
        await user.press("f", "enter", "left_square_bracket")
        assert layers.count_lines() == 8 and "by cycles" not in user.text()

    drive(session(long_names(digits), np.load(SEVEN)), SMALL, play)


def test_a_click_on_a_title_sorts(start: Start) -> None:
    async def play(user: User) -> None:
        await user.press("c")
        layers = user.app.active_pane
        titles = layers.make_heading(layers.columns)[-1].plain

        async def click(title: str) -> str:
            offset = (
                titles.index(title) + 1,
                len(layers.make_heading(80)),
            )  # the border is one line
            await user.pilot.click("LayersPane", offset=offset)
            await user.settle()
            return str(layers.border_subtitle)

        assert (await click("cycles")).startswith("by cycles;")
        assert (await click("cycles")).startswith("by cycles, reversed;")
        assert (await click("operation")).startswith("by operation;")
        assert (await click("saturated")).startswith("by saturated;")
        assert (await click("share")).startswith("by cycles;")
        assert not (await click("layer")).startswith("by")

    drive(start(), SMALL, play)


@pytest.mark.parametrize(("columns", "title"), [(80, "operation"), (200, "critical path")])
def test_names_use_the_free_room(columns: int, title: str, digits: Bundle) -> None:
    async def play(user: User) -> None:
        await user.press("c", *("z" if columns == 200 else ""))
        layers = user.app.active_pane
        assert title in layers.make_heading(layers.columns)[-1].plain
        rows = range(layers.count_lines())
        lines = [layers.make_line(index, layers.columns).plain for index in rows]
        assert len({line[7:25] for line in lines}) == 8
        for line, row in zip(lines, layers._rows, strict=True):
            assert columns < 100 or row.state.display_name in line
            assert f" {row.state.cycles:,} " in line or row.state.placement == "host"

    drive(session(long_names(digits), np.load(SEVEN)), (columns, 50 if columns > 80 else 24), play)


def test_a_bar_is_the_same_with_and_without_the_cursor(start: Start) -> None:
    async def play(user: User) -> None:
        await user.press("c")
        for pane in ("1", "8"):
            await user.press(pane, "home", "down")
            width = user.app.active_pane.columns
            cells = []
            for key in ("end", "home", "down"):
                await user.press(key)
                shown = user.app.active_pane._shown_line(1, width)
                cells.append([span for span in shown.spans if "reverse" in str(span.style)])
                assert all(span.end <= width - 8 for span in cells[-1])
            assert [bool(found) for found in cells] == [False, False, True], pane

    drive(start(), SMALL, play)


def test_keys_select_neighbouring_layers(start: Start) -> None:
    async def play(user: User) -> None:
        text = await user.press("down", "down", "enter")
        assert "<·   1  conv1__2" in text and " ·  [2] pool1__2" in text
        assert ">·   3  conv2__2" in text
        await user.press("3", "J")
        assert user.app.current_view.layer == 3 and user.app.active_pane.title == "Tensor"
        await user.press("K", "K", "K")
        assert user.app.current_view.layer == 0
        await user.press("K")
        assert user.app.current_view.layer == 0, "it reads the input"
        view = user.app.current_view
        user.app.view = attrs.evolve(
            view, facts=attrs.evolve(view.facts, readers={0: (1, 2, 5)}, sources={})
        )
        assert "read layer 0" in await user.press("J")
        assert "5 fc__1" in await user.press("j", "down")
        await user.press("enter")
        assert user.app.current_view.layer == 5
        user.app.select(layer=0)
        assert "read layer 0" in await user.press("J")
        assert "read layer 0" not in await user.press("escape")
        assert user.app.current_view.layer == 0 and user.app.focused is user.app.active_pane

    drive(start(), SMALL, play)


def test_real_values_of_a_reference_are_compared_as_ratios(start: Start, tmp_path: Path) -> None:
    shell = start()
    debugger = shell.debugger
    debugger.run()
    outputs = {}
    for layer in debugger.layers:
        values, scale = debugger.layer_outputs[layer.index], layer.output.scale
        if scale is not None:
            values = (values.astype(np.float32) - (layer.output.offset or 0)) * np.float32(scale)
        outputs[layer.name] = values + np.float32(0.5 if layer.name == "pool1__2" else 0.01)
    debugger.restart()
    np.savez(tmp_path / "floats.npz", **outputs)
    shell.load_reference(tmp_path / "floats.npz")

    async def play(user: User) -> None:
        text = await user.press("c")
        assert " dB" in text and "furthest [2] pool1__2 " in text
        await user.press("right_square_bracket", "right_square_bracket", "right_square_bracket")
        assert "by sqnr" in user.text()
        assert user.app.active_pane.get_target(0) == {"layer": 2}

    drive(shell, (120, 40), play)
