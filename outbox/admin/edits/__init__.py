"""The page that edits a copy of a letter, and what a letter's page says of its edited copies."""
