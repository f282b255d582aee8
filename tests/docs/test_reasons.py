"""What pages say of the reasons of letters is what the runbook says."""

import re

import pytest

from config.flows import flows
from outbox.groups.reasons import LETTERS, OF_SOURCE, PROMISES, REASONS, THROTTLER, Advice
from tests.tree import ROOT, read

LINK = re.compile(r"\[([^]]+)\]\(([^)]+)\)")
OTHERS = re.compile(r" \(\[all flows\]\([^)]+\)\)")
TABLES = {LETTERS: REASONS, THROTTLER: OF_SOURCE["throttler"], PROMISES: OF_SOURCE["messages-in"]}


def words(cell: str) -> str:
    return LINK.sub(r"\1", OTHERS.sub("", cell)).replace("`", "").strip()


def documented(place: str) -> set[Advice]:
    """The rows of the page's table; without those that only lead to another table."""
    page = place.partition("#")[0]
    text = read(ROOT / "docs" / page).partition(f"# {place.partition('#')[2].replace('-', ' ').capitalize()}\n")[2]
    found = set()
    for line in re.search(r"\|---.*?\n((?:\|.*\n)+)", text)[1].splitlines():
        codes, *cells = line.strip("|").split(" | ")
        cause, do = cells if len(cells) == 2 else ["", *cells]
        if not re.search(r"\Afrom `|\A\[as for every", cause or do):
            links = [
                url if not url.startswith("#") else page + url for _, url in LINK.findall(OTHERS.sub("", cause + do))
            ]
            step = re.search(r"\(step `(\w+)`\)", codes)
            reasons = re.sub(r"\(.*\)|…|`", "", codes).split()
            found.add(
                Advice(" ".join(reasons), words(cause), words(do), (links or [place])[0], step[1] if step else "")
            )
    return found


@pytest.mark.parametrize("place", TABLES)
def test_a_page_says_of_a_reason_what_the_runbook_says(place):
    assert documented(place) == set(TABLES[place])
    assert len(TABLES[place]) > 5


def test_the_sources_that_say_something_of_their_own_are_there():
    assert set(OF_SOURCE) <= {source for flow in flows() for source in flow.sources()}
