"""Every row, counter, state and time that somebody may change by hand: what `verify` sees of it, and what it does not."""
