"""Replays of past timeframes, over the wire."""
