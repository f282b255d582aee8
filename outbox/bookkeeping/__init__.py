"""What all flows store about their work: positions, leases, counters, progress."""
