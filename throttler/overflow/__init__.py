"""The overflow buffer: rows of messages over the rate, and the stores they wait in."""
