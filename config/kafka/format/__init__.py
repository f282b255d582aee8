"""Records as bytes on the wire."""
