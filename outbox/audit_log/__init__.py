"""Who did what and why: the operators' actions, the chain that proves them, and reveals."""
