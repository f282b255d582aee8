"""Health, metrics and verification: for Kubernetes, Prometheus and operators."""
