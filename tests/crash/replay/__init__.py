"""Replay batches over letters of every source, whose workers are killed between chunks and inside of them."""
