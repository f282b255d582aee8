"""What Spillway says of itself while it runs: metrics, log lines, traces."""
