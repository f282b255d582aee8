"""A past timeframe of a topic, read again."""
