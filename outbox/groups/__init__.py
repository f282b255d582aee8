"""Failure groups: the cause that letters share, how they are counted, and who works on it."""
