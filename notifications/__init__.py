"""Orders, and the e-mails that tell customers about them."""
