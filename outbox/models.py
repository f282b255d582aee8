"""Every table of this app; each lives with its subject."""

from outbox.accounts.models import SavedView, ViewerZone
from outbox.audit_log.models import ActionSeal, ActionSubject, OfferedRight, OperatorAction
from outbox.bookkeeping.models import FlowCounter, FlowMinute, JobLease, Watermark
from outbox.channels.models import ChannelState
from outbox.groups.models import FailureGroup, GroupHour, GroupQuota
from outbox.letters.models import BurialKey, DeadLetter, PayloadRevision, ProofRound
from outbox.messages.models import DeliveryAttempt, IdempotencyKey, OutboxMessage, Resend
from outbox.notices.models import Incident, Notice, Subscription
from outbox.processes.models import WorkerProcess
from outbox.replay_batches.models import ReplayBatch, ReplayItem
from outbox.sign_in.models import SignIn
from outbox.topic_replay.models import TopicReplay

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
    "Incident",
    "JobLease",
    "Notice",
    "OfferedRight",
    "OperatorAction",
    "OutboxMessage",
    "PayloadRevision",
    "ProofRound",
    "ReplayBatch",
    "ReplayItem",
    "Resend",
    "SavedView",
    "SignIn",
    "Subscription",
    "TopicReplay",
    "ViewerZone",
    "Watermark",
    "WorkerProcess",
]
