"""Log-in at an identity provider, against one that can be told to lie."""
