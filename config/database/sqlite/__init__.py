"""Django's backend for SQLite, as Spillway uses it."""
