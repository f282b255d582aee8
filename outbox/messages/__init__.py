"""Outbox messages: how they are published, confirmed, archived, and their keys swept."""
