"""Log-in at an identity provider: who somebody is there, which roles that gives here, and whether they still have them."""
