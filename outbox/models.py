"""Every table of this app; each lives with its subject."""

from outbox.bookkeeping.models import FlowCounter, FlowMinute, JobLease, Watermark
from outbox.channels.models import ChannelState
from outbox.groups.models import FailureGroup, GroupHour, GroupQuota
from outbox.letters.models import BurialKey, DeadLetter, PayloadRevision, ProofRound
from outbox.messages.models import DeliveryAttempt, IdempotencyKey, OutboxMessage
from outbox.replay.batches.models import ReplayBatch, ReplayItem
from outbox.replay.models import TopicReplay
from outbox.trail.models import ActionSeal, ActionSubject, OfferedRight, OperatorAction

__all__ = [
    "ActionSeal",
    "ActionSubject",
    "BurialKey",
    "ChannelState",
    "DeadLetter",
    "DeliveryAttempt",
    "FailureGroup",
    "FlowCounter",
    "FlowMinute",
    "GroupHour",
    "GroupQuota",
    "IdempotencyKey",
    "JobLease",
    "OfferedRight",
    "OperatorAction",
    "OutboxMessage",
    "PayloadRevision",
    "ProofRound",
    "ReplayBatch",
    "ReplayItem",
    "TopicReplay",
    "Watermark",
]
