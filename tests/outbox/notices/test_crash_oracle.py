"""The oracle of crash runs over notifiers finds each fault that it is there to find."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.crash import notices


@pytest.mark.parametrize(
    ("harm", "finding"),
    [
        (lambda heard: heard[1:], "everybody heard that it began"),
        (lambda heard: heard[:-1], "everybody heard that it is over"),
        (lambda heard: [*heard, heard[0]], "what came twice says so"),
        (lambda heard: [*heard, heard[0]._replace(partition=7, marked=True)], "nobody heard of anything else"),
        (lambda heard: [*heard, heard[0]._replace(marked=True)], None),
    ],
)
def test_a_crash_run_finds_what_was_lost_repeated_or_made_up(harm, finding):
    body = {"title": "[Spillway] {}transfer-requests, partition 1 is stopped", "message": "The log is damaged."}
    bodies = [{**body, "title": body["title"].format(begin)} for begin in ("", "Over: ")]
    heard = notices.words_of("plain", SimpleNamespace(bodies=bodies))
    faults = [fault.name for fault in notices.judge(harm(heard), [1], ["plain"]) if not fault.ok]
    assert faults == ([finding] if finding else [])
