"""Prometheus's text, and quantiles of its histograms."""

from __future__ import annotations

import math

from labtool.etcd.metrics import Metrics

TEXT = """\
# HELP requests_total How many.
# TYPE requests_total counter
requests_total{code="200",path="a \\"b\\""} 7
requests_total{code="500",path="c"} 3
up 1
bad line
seconds_bucket{le="0.1"} 50
seconds_bucket{le="0.2"} 90
seconds_bucket{le="+Inf"} 100
seconds_sum 12
seconds_count 100
to_bucket{To="x",le="1"} 1
to_bucket{To="x",le="+Inf"} 1
to_bucket{To="y",le="1"} 0
to_bucket{To="y",le="+Inf"} 0
"""


def test_samples() -> None:
    """By name and label; None where there is none."""
    metrics = Metrics.parse(TEXT)
    assert metrics.value("up") == 1
    assert metrics.value("requests_total") == 10
    assert metrics.value("requests_total", code="500") == 3
    assert metrics.value("requests_total", code="404") is None
    assert metrics.by("requests_total", "code") == {"200": 7, "500": 3}
    assert metrics.count("seconds") == 100
    assert metrics.series("to", "To") == ("x", "y")


def test_quantiles() -> None:
    """Straight between a bucket's bounds, as Prometheus has it."""
    metrics = Metrics.parse(TEXT)
    assert metrics.quantile(0.5, "seconds") == 0.1
    assert metrics.quantile(0.25, "seconds") == 0.05
    assert math.isclose(metrics.quantile(0.7, "seconds") or 0, 0.15)
    assert metrics.quantile(0.99, "seconds") == math.inf
    assert metrics.quantile(0.99, "to", To="y") is None
    assert metrics.quantile(0.99, "absent") is None
