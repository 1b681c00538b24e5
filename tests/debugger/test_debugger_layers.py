"""Test that all commands, conditions and expressions accept the same forms of layer names."""

from __future__ import annotations

import pytest

from nmpsim.debugger.commands.shell import Shell
from nmpsim.diagnostics import UserError

WORDS = ("1", "conv1", "line:20", "number:4")
"""Names and numbers that all identify conv1__2."""
LOOKS = (
    "layer LAYER", "tensor LAYER 0 3 5 2", "saturation LAYER", "source LAYER", "integers LAYER",
    "why LAYER 0 3 5 2", "readers LAYER 0 3 5 2",
)  # fmt: skip
CONDITIONS = ("layer LAYER", "saturation in LAYER > 1", "result in LAYER differs")
EXPRESSIONS = ("saturation(LAYER)", "cycles(LAYER)", "value(LAYER, 0, 3, 5, 2)")
CHANGES = ("until layer LAYER", "change LAYER out_mul 3", "watch LAYER 0 3 5 2")


@pytest.fixture
def finished_shell(shell: Shell) -> Shell:
    """Return a shell at the end of the run."""
    shell.execute("continue")
    return shell


@pytest.mark.parametrize("line", LOOKS)
def test_commands_that_show_accept_every_layer_form(finished_shell: Shell, line: str) -> None:
    found = [
        finished_shell.execute(line.replace("LAYER", word)).data for word in ("conv1__2", *WORDS)
    ]
    assert found[0]
    assert all(one == found[0] for one in found[1:])


@pytest.mark.parametrize("text", CONDITIONS)
def test_conditions_accept_every_layer_form(shell: Shell, text: str) -> None:
    for word in ("conv1__2", *WORDS):
        shell.execute("break " + text.replace("LAYER", word))
    conditions = {one.condition for one in shell.debugger.breakpoints}
    assert len(conditions) == 1


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_expressions_accept_every_layer_form(finished_shell: Shell, text: str) -> None:
    words = ("conv1__2", *WORDS)
    values = {
        finished_shell.execute("eval " + text.replace("LAYER", word)).data["value"]
        for word in words
    }
    assert len(values) == 1


@pytest.mark.parametrize("line", CHANGES)
def test_commands_that_change_accept_every_layer_form(shell: Shell, line: str) -> None:
    for word in WORDS[1:]:
        assert shell.execute(line.replace("LAYER", word)).lines


@pytest.mark.parametrize("word", ["conv", "number:0", "99"])
@pytest.mark.parametrize(
    "line",
    [
        *LOOKS,
        *CHANGES,
        *(f"break {one}" for one in CONDITIONS),
        *(f"eval {e}" for e in EXPRESSIONS),
    ],
)
def test_an_unknown_layer_is_refused_with_candidates(shell: Shell, line: str, word: str) -> None:
    if line.startswith("watch") and word.isdecimal():  # which is an address
        return
    with pytest.raises(UserError) as error:
        shell.execute(line.replace("LAYER", word))
    (problem,) = error.value.diagnostics
    assert problem.code == "LAYER001"
    assert problem.found is not None
    assert "conv1__2 (index 1, number 4)" in problem.found
