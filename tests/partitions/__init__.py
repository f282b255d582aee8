"""Partitions: the arithmetic, the plan, and what really happens on each database."""
