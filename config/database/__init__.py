"""What Django's ORM does not do for us: whole batches in one statement, the server's clock, its errors."""
