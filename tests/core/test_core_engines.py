"""The engines by name."""

import pytest

from nmpsim.core.engine_selection import ENGINES, make_engine
from nmpsim.diagnostics import UserError


@pytest.mark.parametrize("name", ENGINES)
def test_an_engine_has_its_name(name):
    assert make_engine(name).name == name


def test_an_unknown_engine_is_an_error():
    with pytest.raises(UserError, match="ARG001") as error:
        make_engine("foo")
    assert error.value.diagnostics[0].found == "engine='foo'"
    assert error.value.diagnostics[0].expected == "auto, compiled or reference"
