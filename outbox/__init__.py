"""Rows that are held, retried, parked and replayed."""
