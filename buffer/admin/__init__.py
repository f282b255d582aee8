"""Admin pages of the buffer and of the stock."""

from buffer.admin import batches, buckets, catalogue, events, movements, stocks

__all__ = ["batches", "buckets", "catalogue", "events", "movements", "stocks"]
