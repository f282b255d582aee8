"""Rows that say how far things have come and who did what: leases, counters, watermarks, the trail."""
