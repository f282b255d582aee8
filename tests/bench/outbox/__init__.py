"""What the bench measures of the outbox, its mails and their letters."""
