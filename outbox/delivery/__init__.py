"""The way of a message: claimed, sent, settled; or recovered, expired, decided."""
