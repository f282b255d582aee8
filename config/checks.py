"""System checks (written below)."""
