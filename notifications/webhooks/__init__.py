"""What providers tell us afterwards: verified on the raw bytes, stored raw, applied idempotently."""
