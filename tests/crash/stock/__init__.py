"""Crash runs of the ledger: movements that must count once."""
