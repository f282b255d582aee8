"""The reasons of dead letters: their usual cause, what to do, and the page of docs/ that says more. Tests compare them with docs/."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from django.utils.text import Truncator, capfirst

from outbox.groups.models import FailureGroup

LETTERS, THROTTLER, PROMISES = (
    "letters.md#reasons", "throttler-run.md#dead-letters", "messages-in.md#when-something-is-wrong",
)  # fmt: skip
LONGEST_HINT = 200  # characters of one on home
PRODUCER = "a producer's mistake"


class Advice(NamedTuple):
    """What is known of all letters of a reason."""

    reasons: str
    cause: str
    do: str
    page: str  # in docs/, with its anchor
    step: str = ""  # empty: of every step


REASONS = (
    Advice("invalid_json wrong_field empty invalid_utf8 nul_character too_deep", PRODUCER,
           "let the producer send it again, then resolve; requeue only after a change in Spillway", LETTERS),
    Advice("not_framed undecodable wrong_format", "a record that is not in the format of its topic",
           "let the producer send it again as the topic is declared, then resolve", LETTERS),
    Advice("unknown_schema", "the registry has no schema of this id: it was deleted, or the record names another registry",
           "register it again, then requeue; it is asked for again after a minute", LETTERS),
    Advice("schema_refused", "a schema by which a small record may become a large one, or that holds itself",
           "let the producer use another schema, then resolve", LETTERS),
    Advice("too_large",
           "larger than BUFFER_MAX_EVENT_BYTES, or in a compressed batch larger than KAFKA_MAX_BATCH_BYTES",
           "raise the setting the letter names, restart the worker, requeue; or resolve", LETTERS),
    Advice("unreadable_batch",
           "nobody can unpack a whole batch of the topic; the text names its offsets, the payload is the "
           "batch as it lies in the log",
           "let the producer send those records again, then resolve. It cannot be requeued", LETTERS),
    Advice("outside_window", "an order older than the retention, or more than three months ahead",
           "check ordered_at; resolve. A requeue stores it if its month is inside the window by then", LETTERS),
    Advice("database_refused",
           "the database refuses every batch with this order, usually a character that its encoding lacks; "
           "the order was set aside, the others left",
           "mend the database (UTF-8), then requeue; or edit and requeue; or discard", LETTERS, step="cut"),
    Advice("database_refused", "the database refuses a record that passed all checks",
           "this is a bug: keep the letter, report it", LETTERS),
    Advice("cannot_be_summed", "a class of STREAMS fails on this order; it was set aside, the others left",
           "mend the class, restart the flushers, requeue", LETTERS),
    Advice("late_event", "a change that came after the batch was sent",
           "requeue: what is missing from what was sent goes out as a supplement; or discard", LETTERS),
    Advice("unknown_stock", "a stock that was never opened", "open it with import_stock, then requeue", LETTERS),
    Advice("negative_stock", "more is taken than there is, with LEDGER_NEGATIVE_STOCK=park",
           "if a receipt has come since, requeue; otherwise do a stocktake", LETTERS),
    Advice("conflicting_effect", "one reference with two quantities",
           "ask the producer which is right; correct by a stocktake, then resolve", LETTERS),
    Advice("equal_ends out_of_range reference_too_long", PRODUCER, "resolve", LETTERS),
    Advice("partition_stopped", "a topic was created again, or a part of its log is gone or damaged",
           "see SpillwayPartitionStopped, then resolve", "alerts.md#spillwaypartitionstopped"),
    Advice("position_conflict", "the same position with another payload",
           "check whether the topic was created again before you do anything else. A requeue finds nothing newer", LETTERS),
    Advice("batch_refused", "the broker will never take this batch",
           "see SpillwayBatchParked, then requeue", "alerts.md#spillwaybatchparked"),
    Advice("refused", "the other side will never take this message: no such mailbox, a topic that does not exist",
           "remove the cause, requeue; or tell the person another way, then resolve", LETTERS),
    Advice("suppressed", "the address bounced for good, or its owner complained",
           "if that was wrong, lift the suppression and requeue; otherwise discard", LETTERS),
    Advice("max_retries", "all tries failed", "read the error; requeueing gives all tries back", LETTERS),
    Advice("expired", "it waited longer than OUTBOX_EXPIRES_SECONDS: a pause, an outage, a slow channel",
           "requeue if somebody still wants it; otherwise discard", LETTERS),
    Advice("uncertain", "after all tries nobody knows whether it was accepted, or a person gave it up",
           "ask the provider; requeue only if it was not sent", LETTERS),
    Advice("crash_loop", "it was claimed far too often: it seems to kill its workers",
           "read their logs before you requeue", LETTERS),
    Advice("no_row bad_id bad_event_type bad_created_at unknown_operation",
           "a record in the CDC topic that Debezium did not write",
           "the poller has the message anyway; repair the connector, then resolve", LETTERS),
    Advice("other", "its source made more than 200 groups in an hour: texts that differ in a word without a digit",
           "look at a few of its letters; report the text", LETTERS),
)  # fmt: skip
# What these sources say otherwise, or alone.
OF_SOURCE = {
    "throttler": (
        Advice("invalid_json wrong_field empty", PRODUCER, "let the producer send it again, then resolve", THROTTLER),
        Advice("too_large", "longer than THROTTLER_MAX_MESSAGE_BYTES, or with its headers more than the broker takes",
               "raise the setting, restart the workers, requeue; or resolve", THROTTLER),
        Advice("unreadable_batch", "nobody can unpack a whole batch",
               "let the producer send its messages again, then resolve", THROTTLER),
        Advice("no_customer long_customer control_character",
               "no usable customer_id: empty, too long, control characters",
               "let the producer correct it, then resolve", THROTTLER),
        Advice("long_id", "notification_id is too long", "let the producer correct it, then resolve", THROTTLER),
        Advice("bad_created_at",
               "no ISO 8601 time with its zone", "let the producer correct it, then resolve", THROTTLER),
        Advice("negative_ttl long_ttl", "ttl_seconds below 0, or above THROTTLER_TTL_SECONDS",
               "let the producer correct it, then resolve; or raise the setting and requeue", THROTTLER),
        Advice("broker_refused", "the broker never takes what the message becomes",
               "read the error; correct the topic, then requeue", THROTTLER),
        Advice("database_refused", "the store never takes the row", "keep the letter, report it", THROTTLER),
        Advice("messages_lost", "lost rows that Kafka does not have any more",
               "tell the customer, then resolve: there is nothing to send", "throttler-run.md#lost-rows"),
        Advice("topic_recreated",
               "the input was created again while a requeued message was on its way: nobody knows whether it left",
               "ask, then requeue once more or resolve", THROTTLER),
        Advice("partition_stopped", "changelog and offsets disagree",
               "see there, then resolve", "throttler-run.md#changelog-and-offsets-disagree"),
    ),
    "messages-in": (
        Advice("empty invalid_json invalid_utf8 nul_character too_deep too_large", "",
               "no record that Spillway reads: the producer writes it again", PROMISES),
        Advice("missing_field wrong_field bad_expires_at",
               "", "edit a copy, or the producer writes it again", PROMISES),
        Advice("unknown_producer channel_not_allowed",
               "", "correct MESSAGES_IN or the producer, then requeue", PROMISES),
        Advice("payload_refused", "",
               "the channel says why, such as an address nobody can write to: edit a copy", PROMISES),
        Advice("key_conflict", "",
               "was the first one right? Discard this one. Is it another message? Give its copy a key of its own", PROMISES),
        Advice("expired", "", "of a requeued letter: its expires_at is over; edit a copy, or discard it", PROMISES),
    ),
}  # fmt: skip


class WithReason(Protocol):
    """A letter, or a group of them."""

    source: str
    step: str
    reason: str


def advice_on(failed: WithReason) -> Advice | None:
    """What is known of it: by its source before the others, by its step before every step."""
    rows = [row for row in (*OF_SOURCE.get(failed.source, ()), *REASONS) if failed.reason in row.reasons.split()]
    return next((row for row in rows if row.step in (failed.step, "")), None)


def runbook_of(failed: WithReason) -> str:
    """The page of docs/ that says more; empty for a reason of somebody's own flow."""
    return advice.page if (advice := advice_on(failed)) else ""


def what_to_do(group: FailureGroup) -> str:
    """In one sentence: what a person wrote first, or else the row of its reason."""
    advice = advice_on(group)
    if group.hint:
        return Truncator(group.hint.strip().splitlines()[0]).chars(LONGEST_HINT)
    return f"{capfirst(advice.do)}." if advice else "Requeue, resolve or discard them."
