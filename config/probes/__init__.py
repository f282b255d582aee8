"""Health, metrics and what `doctor` finds: for Kubernetes, Prometheus and operators."""
