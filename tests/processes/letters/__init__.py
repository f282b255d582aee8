"""Replay batches as processes: workers that are killed, and the oracle that judges them."""
