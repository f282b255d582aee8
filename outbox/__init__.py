"""The transactional outbox, dead letters, and what all flows store about their work."""
