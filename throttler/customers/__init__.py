"""Customers: their rates, and the levers that change them."""
