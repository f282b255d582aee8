"""Replay batches: one verb over many letters, previewed, held, tried on a few, carried out at a rate, verified."""
