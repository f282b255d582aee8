"""Webhooks of e-mail providers: verified on the raw bytes, stored raw, applied idempotently."""
