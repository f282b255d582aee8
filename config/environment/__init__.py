"""The environment, read once at start: variables, the URL of the database, the URL of the mail server."""
