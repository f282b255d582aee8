"""Letters of the aggregator taken back: what was late, and what a handler or the broker refused."""
