"""Mails, their recipients, and their deliveries."""
