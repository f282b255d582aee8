"""Crash runs of the outbox: orders whose mails must leave."""
