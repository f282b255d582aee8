"""How each database unpacks JSON rows, upserts them, and says what changed: one class per vendor."""
