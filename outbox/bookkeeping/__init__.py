"""Leases, counters, watermarks, and the trail of operators."""
