"""Admin pages of the buffer and of the stock."""

from buffer.admin import buckets, stocks

__all__ = ["buckets", "stocks"]
