"""Every table of this app; each lives with its subject."""

from outbox.bookkeeping.models import FlowCounter, FlowMinute, JobLease, OperatorAction, Watermark
from outbox.channels.models import ChannelState
from outbox.letters.models import BurialKey, DeadLetter, FailureGroup
from outbox.messages.models import DeliveryAttempt, IdempotencyKey, OutboxMessage
from outbox.replay.models import TopicReplay

__all__ = [
    "BurialKey",
    "ChannelState",
    "DeadLetter",
    "DeliveryAttempt",
    "FailureGroup",
    "FlowCounter",
    "FlowMinute",
    "IdempotencyKey",
    "JobLease",
    "OperatorAction",
    "OutboxMessage",
    "TopicReplay",
    "Watermark",
]
