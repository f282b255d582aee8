"""What the ORM does not have: batches in one statement, the server's clock, its errors, compiled queries."""
