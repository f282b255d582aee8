"""What the store has lost, read again from the input."""
