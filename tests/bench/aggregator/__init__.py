"""What the bench measures of orders, batches and the ledger."""
