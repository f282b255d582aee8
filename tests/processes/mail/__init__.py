"""Relays and listeners as processes."""
