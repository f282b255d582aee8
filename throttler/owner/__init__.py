"""The owner of partitions: one thread that decides, drains and commits, and what stands around it."""
