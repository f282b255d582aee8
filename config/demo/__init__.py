"""`make run`: everything on this machine, with sample traffic."""
