"""Names and texts that docs/writing.md rules out do not come back."""

import ast

import plain_style
import pytest


@pytest.mark.parametrize("title", plain_style.CHECKS)
def test_no_violation_of_the_writing_standard(title):
    assert list(plain_style.CHECKS[title]()) == []


@pytest.mark.parametrize(
    ("call", "is_violation"),
    [
        ("fail('ARG001', 'the value is wrong', found=value)", True),
        ("fail('ARG001', 'the value is wrong', found=value, expected='1')", False),
        ("fail('ARG001', 'the value is wrong', hint='Pass 1.')", False),
        ("Diagnostic('ARG001', 'the value is wrong', place, found)", True),
        ("Diagnostic('ARG001', 'the value is wrong', place, found, '1')", False),
        ("self.fail('the value is wrong')", False),
    ],
)
def test_messages_without_a_solution_are_found(call, is_violation):
    (statement,) = ast.parse(call).body
    assert plain_style.lacks_solution(statement.value) == is_violation


def test_fragments_are_found():
    assert plain_style.DOCSTRING_STARTS.match("What a layer became.")
    assert not plain_style.DOCSTRING_STARTS.match("Return the layer's operation.")
    assert plain_style.FUNCTION_NAMES.fullmatch("_say_loading")
    assert not plain_style.FUNCTION_NAMES.fullmatch("annotate")
