"""What this process shows of a metric on /metrics."""

from prometheus_client.metrics import MetricWrapperBase


def exported(metric: MetricWrapperBase, **labels: str) -> dict[tuple[str, ...], float]:
    """Values by their labels, of the samples that have these labels; of a histogram how often something was observed."""
    (family,) = metric.collect()
    ending = {"counter": "_total", "histogram": "_count"}.get(family.type, "")
    return {
        tuple(sample.labels.values()): sample.value
        for sample in family.samples
        if sample.name == family.name + ending and labels.items() <= sample.labels.items()
    }
