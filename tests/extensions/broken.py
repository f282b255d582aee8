"""A module of an extension that cannot be imported."""

raise RuntimeError("no licence")
