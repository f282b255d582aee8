"""What the HTTP routes of all apps share: refusals, stored answers, keys. Workers do not load it."""
