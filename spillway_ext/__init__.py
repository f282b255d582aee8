"""What an extension may import: these names keep their meaning while the first number of `API` stays (docs/extensions.md).

Most of them need settings, which the module of a SpillwayApp is read for: each is loaded when it is first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from config.environment.extensions import API, SpillwayApp

if TYPE_CHECKING:
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
    from outbox.api.problems import CustomerRouter, Problem
    from outbox.channels.handlers import MessageHandler, Outcome
    from outbox.messages.publish import publish

HOMES = {
    "buffer.ledger.topics": ["Movements"],
    "buffer.streams": ["Identifier", "Quantity", "Stream", "TransferRequest"],
    "config.admin.pages": ["ReadOnlyAdmin"],
    "config.causes": ["Line"],
    "config.database.queries": ["delete_in_chunks"],
    "config.environment.env": ["BadSetting"],
    "config.fields": ["IdentifierField", "uuid7"],
    "config.flows": ["Check", "Flow", "HomeRow", "Need", "Reading", "Sample", "Stage", "Worker"],
    "config.gate": ["Gate", "InvalidRecord"],
    "config.letters": ["Effect", "Judgement", "Letters", "Refusal"],
    "config.partitions.operations": ["PartitionTable"],
    "config.partitions.spec": ["PartitionSpec"],
    "config.telemetry.metrics": ["Counter", "Gauge", "Histogram"],
    "outbox.api.problems": ["CustomerRouter", "Problem"],
    "outbox.channels.handlers": ["MessageHandler", "Outcome"],
    "outbox.messages.publish": ["publish"],
}
_HOME = {name: home for home, names in HOMES.items() for name in names}
__all__ = ["API", "SpillwayApp", *_HOME]  # noqa: PLE0604 (a test compares it with what is imported above)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"spillway_ext has no {name!r}")
    return getattr(import_module(_HOME[name]), name)
