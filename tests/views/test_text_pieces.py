"""Small pieces of text."""

import pytest

from nmpsim.diagnostics import format_count
from nmpsim.escape import escape, escape_line
from nmpsim.views import text


@pytest.mark.parametrize(
    ("name", "width", "short"),
    [
        ("conv", 4, "conv"),
        ("abcdefghij", 10, "abcdefghij"),
        ("abcdefghijk", 10, "abcd...ijk"),
        ("abcdefghijk", 4, "abcd"),
        ("abcdefghijk", 5, "a...k"),
    ],
)
def test_names_are_shortened_in_the_middle(name, width, short):
    assert text.shorten_middle(name, width) == short
    assert len(short) <= width


def test_control_characters_are_shown_not_obeyed():
    assert escape("a\x1b[31mb\x9bc\r\n") == "a\\x1b[31mb\\x9bc\\x0d\n"
    assert escape_line("a\nb\tc") == "a\\nb c"


@pytest.mark.parametrize(
    ("part", "whole", "shown"),
    [(1, 3, "33.3"), (0, 3, "0.0"), (1, 1_000_000, "<0.1"), (1, 0, "-"), (3, 3, "100.0")],
)
def test_percentages_are_formatted(part, whole, shown):
    assert text.format_percent(part, whole) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0 s"), (2e-9, "2 ns"), (4.375e-6, "4.38 us"), (0.0123, "12.3 ms"), (5000, "5,000 s")],
)
def test_durations_are_formatted(seconds, shown):
    assert text.format_duration(seconds) == shown


def test_sizes_and_counts_are_formatted():
    assert text.format_bytes(1234) == "1,234 bytes"
    assert text.format_bytes(1 << 20) == "1,048,576 bytes (1.0 MiB)"
    assert text.format_bytes(20 << 10) == "20,480 bytes (20.0 KiB)"
    assert text.format_bytes(20 << 20) == "20,971,520 bytes (20.0 MiB)"
    assert format_count(1, "layer") == "1 layer"
    assert format_count(2000, "layer") == "2,000 layers"
    assert text.format_shape(()) == "scalar"
    assert text.format_shape((1, 3)) == "1x3"


def test_similar_long_names_show_their_differences() -> None:
    names = [
        f"model/block_{n}/conv{k}/BiasAdd;model/bn{n}/FusedBatchNormV3" for n in "12" for k in "12"
    ]
    for width in (20, 28, 40):
        shown = text.shorten_distinct(names, width)
        assert len(set(shown)) == len(names), (width, shown)
        assert max(map(len, shown)) <= width
    assert text.shorten_distinct(names, 28)[0] == "...lock_1/conv1/BiasAdd;m..."
    same = [names[0], names[0], "short", "x" * 50 + "y"]
    assert text.shorten_distinct(same, 20) == [text.shorten_middle(one, 20) for one in same]
    assert text.shorten_distinct(names, 6) == [text.shorten_middle(one, 6) for one in names]


@pytest.mark.parametrize(
    ("watts", "shown"),
    [(0, "0 W"), (9.996e-10, "1 nW"), (0.355, "355 mW"), (1.15, "1.15 W"), (1234.5, "1,234 W")],
)
def test_quantities_have_three_digits_and_no_exponent(watts: float, shown: str) -> None:
    assert text.format_quantity(watts, "W") == shown
