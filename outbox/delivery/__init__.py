"""Delivery: messages are claimed, sent and settled; or recovered, expired, decided."""
