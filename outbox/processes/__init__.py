"""Which processes work, which are gone, and which say nothing: a row each, written every ten seconds."""
