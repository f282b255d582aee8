"""Whether Spillway is well: asked by Kubernetes, Prometheus, an operator."""
