"""Each customer at their rate, live when possible, buffered when not (seed 1)."""
