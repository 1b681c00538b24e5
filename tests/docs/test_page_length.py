"""Pages stay short: limits for words written by hand."""

import re
from pathlib import Path

import pytest
from page_length import count_words, handwritten_text

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
DECISIONS = [page for page in PAGES if page.parent.name == "decisions"]
SPLIT = "split the page, move facts to generated tables, or link instead of repeating"


def split_words(page):
    return count_words(handwritten_text(page))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_has_at_most_2500_words(page):
    assert split_words(page) <= 2500, SPLIT


def test_all_pages_have_at_most_40000_words():
    assert sum(map(split_words, PAGES)) <= 40_000, SPLIT


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.name)
def test_a_decision_record_has_at_most_250_words(page):
    text = page.read_text(encoding="utf-8")
    assert count_words(text) <= 250
    parts = re.findall(r"^\*\*(Context|Decision|Consequences)\.\*\*", text, re.M)
    assert parts == ["Context", "Decision", "Consequences"]


def test_the_readme_has_at_most_900_words():
    assert count_words((ROOT / "README.md").read_text(encoding="utf-8")) <= 900


def test_a_section_of_the_changelog_has_at_most_60_lines():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    sections = re.split(r"^## ", text, flags=re.M)[1:]
    assert sections
    for section in sections:
        assert len(section.strip().splitlines()) <= 60, section.splitlines()[0]


def test_contributing_fits_a_screen():
    assert len((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").splitlines()) <= 65
