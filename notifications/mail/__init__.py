"""A mail, whom it may go to, and what became of it."""
