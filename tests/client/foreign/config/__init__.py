"""Settings of the foreign project."""
