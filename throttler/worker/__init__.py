"""The thread that owns partitions, and what runs beside it: the database, the read model, the consumer."""
