"""Lanes: what the throttler remembers of a customer in a partition, its changelog and its read model."""
