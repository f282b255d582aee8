"""Layer 2, not built yet: orders and the e-mail they promise (an open issue)."""
