"""Every table of this app; each lives with its subject."""

from buffer.events.models import Batch, Bucket, BufferedEvent
from buffer.ledger.models import InventoryItem, InventoryLocation, InventoryStock, InventoryTracking

__all__ = [
    "Batch",
    "Bucket",
    "BufferedEvent",
    "InventoryItem",
    "InventoryLocation",
    "InventoryStock",
    "InventoryTracking",
]
