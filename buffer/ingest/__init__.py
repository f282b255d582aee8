"""Records become events."""
