"""The channels of messages, as `kafka` and `email`: what delivers each (HANDLERS), and whether it may send now."""
