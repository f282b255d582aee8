"""Ingesters and flushers as processes."""
