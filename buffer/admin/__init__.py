"""Admin pages of the buffer and of the stock."""

from buffer.admin import buckets, movements, stocks

__all__ = ["buckets", "movements", "stocks"]
