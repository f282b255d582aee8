"""What the environment says, read once at start: variables, the database's URL, the mail server's."""
