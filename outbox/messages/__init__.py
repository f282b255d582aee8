"""What the outbox holds: written with the change it tells of, proven, and kept for a while."""
