"""Each customer at their rate, with an overflow buffer: not built yet."""
