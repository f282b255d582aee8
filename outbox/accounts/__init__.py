"""Accounts and roles: who may log in, by which link, and what each role may do."""
