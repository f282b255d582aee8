"""Accounts: who may log in, by which link, in which role."""
