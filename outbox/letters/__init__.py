"""Dead letters: buried, listed, edited, requeued, closed, and what became of them."""
