"""Admin pages of customers and of what they have waiting."""

from throttler.admin import customers

__all__ = ["customers"]
