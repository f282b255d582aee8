"""Dead letters: how they are buried, counted, requeued and closed."""
