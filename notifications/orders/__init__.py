"""Orders, and what can happen to them."""
