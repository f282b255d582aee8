"""Edited copies of dead letters: what may change, what the gate says, what changes, and the deed."""
