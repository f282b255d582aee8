"""How each process of Spillway starts, loops and ends."""
