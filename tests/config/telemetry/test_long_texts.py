"""A text of a stranger costs as much as it is long: a pattern that looks again from each letter would cost the square.

The limit is processor time of this process, far above what is needed, and far below the square.
"""

from __future__ import annotations

import signal

import pytest

from config.admin.humanize import pretty
from config.telemetry.redaction import masked_error, of_others, redact, without_addresses, without_values
from config.templatetags.spillway import highlight
from outbox.groups.fingerprint import template_of
from outbox.letters.edit_checks import located, places

LONG = 100_000  # characters
MOST = 4  # seconds of processor
PARTS = [
    "a", "a.", "a@", "@", "a://", "a://b?", "?", "“", "”", "'", '"', "' ", "entry '", "value: '", ': "', '": ', " ", "\n", " \n", "\t",
    ".", "!", ".a", "-", "…", "…. ", "<", "$.a", " - at `$", "[1]", "(byte ", "550 ", "5.1.1", "A", "Aa", "\\", '\\"', "{", "1/", "•", "é", "_40", "a%40b-", '"@',
    "&#43;", "a&b;", "&amp;", "&#0", "\\u002b", "=2B", "a=40", "=40", "+40", "%25", "%40.", "+AEA-", "a&commat;", "0-", "0a" * 16, "/", "/?", "spillway_", "bearer ",
]  # fmt: skip
READERS = {
    "masked_error": masked_error, "without_addresses": without_addresses, "without_values": without_values,
    "template_of": template_of, "places": places, "located": lambda text: located(text, ""), "highlight": highlight,
    "pretty": pretty, "of_others": of_others, "redact": lambda text: redact({"path": text}),
}  # fmt: skip


@pytest.fixture(autouse=True)
def limit():
    def too_long(number, frame):
        raise AssertionError("it costs more than its length")

    before = signal.signal(signal.SIGVTALRM, too_long)
    signal.setitimer(signal.ITIMER_VIRTUAL, MOST)
    yield
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    signal.signal(signal.SIGVTALRM, before)


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
@pytest.mark.parametrize("part", PARTS, ids=ascii)
def test_a_text_costs_its_length(part, read):
    for beginning, ending in (("", ""), ('…"', "…x")):
        read(beginning + part * (LONG // len(part)) + ending)
