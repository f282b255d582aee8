"""Replay batches in a terminal."""
