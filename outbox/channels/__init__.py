"""Channels: their handlers, and whether messages may be sent now."""
