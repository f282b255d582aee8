"""Layer 2, not built yet: each customer at their rate, with an overflow buffer (an open issue)."""
