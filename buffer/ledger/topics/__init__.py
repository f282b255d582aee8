"""What a record of each stock topic does: pure."""
