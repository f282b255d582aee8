"""Real processes against real servers: what only shows when workers live, die and come back."""
