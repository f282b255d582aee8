"""The public names, in the modules that they live in: nothing else of Spillway is for an extension to import."""

from buffer.ledger.topics import Movements
from buffer.streams import Identifier, Quantity, Stream, TransferRequest
from config.admin.pages import ReadOnlyAdmin
from config.causes import Line
from config.database.queries import delete_in_chunks
from config.environment.env import BadSetting
from config.fields import IdentifierField, uuid7
from config.flows import Check, Flow, HomeRow, Need, Reading, Sample, Stage, Worker
from config.gate import Gate, InvalidRecord
from config.letters import Effect, Judgement, Letters, Refusal
from config.partitions.operations import PartitionTable
from config.partitions.spec import PartitionSpec
from config.telemetry.metrics import Counter, Gauge, Histogram
from notifications.mail.content import complete as mail
from outbox.api.problems import CustomerRouter, Problem
from outbox.channels.handlers import MessageHandler, Outcome
from outbox.messages.publish import publish
