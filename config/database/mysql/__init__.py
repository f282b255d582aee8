"""Django's backend for MySQL and MariaDB, as Spillway uses it."""
