"""The ways out: what delivers, and whether anything may leave now."""
