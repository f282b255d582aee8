"""docs/logs.md lists every event that is logged, and docs/states.md the event of every transition."""

import re

import pytest

from buffer.events.models import Batch, BufferedEvent
from notifications.mail.deliveries import DeliveryStatus
from notifications.orders.models import Order
from notifications.webhooks.inbox import WebhookEvent
from outbox.letters.models import DeadLetter
from outbox.messages.models import OutboxMessage
from outbox.models import FailureGroup, ReplayBatch, TopicReplay
from tests.docs.logged import events, fields_of_messages
from tests.tree import ROOT, read

CODE = re.compile(r"`(\w+)`")
STATES = {
    "Event": BufferedEvent.Status, "Batch": Batch.Status, "Outbox message": OutboxMessage.State, "Dead letter": DeadLetter.Status,
    "Failure group": FailureGroup.State, "Order": Order.Status, "Delivery": DeliveryStatus,
    "Webhook event": WebhookEvent.Verdict, "Topic replay": TopicReplay.State, "Replay batch": ReplayBatch.State,
}  # fmt: skip
# What acts for all flows tells of their rows, too.
SHARED = {"claims_recovered", "partition_drop", "action_recorded"}


def described():
    """Each event of docs/logs.md with its levels and fields."""
    found = {}
    for line in read(ROOT / "docs" / "logs.md").splitlines():
        if match := re.match(r"\| `(\w+)` \| ([a-z ]+) \| (.*?) \| .+ \|$", line):
            name, levels, fields = match.groups()
            assert name not in found, f"{name} stands twice"
            ids = fields_of_messages() if "*ids*" in fields else set()
            found[name] = (set(levels.split()), set(CODE.findall(fields)) | ids)
    return found


def test_every_event_is_described_with_its_levels_and_fields_and_no_other():
    assert described() == {name: (event.levels, event.fields) for name, event in events().items()}


def transitions():
    """(subject, cells) of each row in the tables of transitions."""
    subject, inside = "", False
    for line in read(ROOT / "docs" / "states.md").splitlines():
        subject = line.removeprefix("## ") if line.startswith("## ") else subject
        inside = line.startswith("|") and (inside or line.startswith("| from | to |"))
        if inside and not line.startswith(("| from |", "|---")):
            yield subject, [cell.strip() for cell in line.strip("|").split(" | ")]


def test_every_transition_names_the_event_that_its_own_code_logs():
    rows = list(transitions())
    assert len(rows) > 100
    silent = []
    for subject, (_from, _to, when, function, named) in rows:
        known = events()
        apps = {place.split("/")[0] for place in re.findall(r"`([\w/]+)\.py:", function)}
        told = [
            name for name in CODE.findall(named)
            if name in SHARED or apps & {module.split("/")[0] for module in known[name].modules}
        ]  # fmt: skip
        silent += [] if told else [(subject, when, named)]
    # Nobody makes this one: the time comes.
    assert silent == [("Bucket", "`due_at` is reached", "–")]


def test_the_event_of_a_transition_is_said_when_it_is_committed():
    named = {name for _subject, cells in transitions() for name in CODE.findall(cells[-1])}
    said_before = {name for name, event in events().items() if not event.committed}
    assert named & said_before == {"partition_drop"}  # a statement of its own, outside of any transaction


@pytest.mark.parametrize("subject", STATES)
def test_every_state_is_reached_by_a_transition_with_an_event(subject):
    reached = {state for about, cells in transitions() if about == subject for state in CODE.findall(cells[1])}
    assert reached == {state.value for state in STATES[subject]}
