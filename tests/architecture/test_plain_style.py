"""Names and texts that docs/writing.md rules out do not come back."""

import plain_style
import pytest


@pytest.mark.parametrize("title", plain_style.CHECKS)
def test_no_violation_of_the_writing_standard(title):
    assert list(plain_style.CHECKS[title]()) == []


def test_fragments_are_found():
    assert plain_style.DOCSTRING_STARTS.match("What a layer became.")
    assert not plain_style.DOCSTRING_STARTS.match("Return the layer's operation.")
    assert plain_style.FUNCTION_NAMES.fullmatch("_say_loading")
    assert not plain_style.FUNCTION_NAMES.fullmatch("annotate")
