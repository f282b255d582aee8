"""Kill workers at the worst moments and count what is missing; the oracle shares no code with Spillway."""
