"""The tracking ledger: every stock effect exactly once, and the ledger is the audit log (docs/ledger.md)."""
