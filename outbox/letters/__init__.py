"""Dead letters: how they are written, counted, sent back and closed."""
