"""Prometheus's text format, and what a histogram says of the slowest hundredth.

https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_LINE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? ([+-]?(?:\d\S*|Inf|NaN))")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Metrics:
    """All samples of one scrape, by name."""

    samples: Mapping[str, tuple[tuple[Labels, float], ...]]

    @classmethod
    def parse(cls, text: str) -> Metrics:
        """From the text; lines that are no samples are passed over."""
        found = defaultdict(list)
        for line in text.splitlines():
            if match := _LINE.match(line):
                name, labels, value = match.groups()
                found[name].append((dict(_LABEL.findall(labels or "")), float(value)))
        return cls({name: tuple(rows) for name, rows in found.items()})

    def value(self, name: str, **labels: str) -> float | None:
        """The sum of the samples with this name and these labels; None where there is none."""
        values = [v for of, v in self._rows(name, labels)]
        return sum(values) if values else None

    def by(self, name: str, label: str) -> dict[str, float]:
        """The samples with this name, by one label's value."""
        return {of[label]: v for of, v in self.samples.get(name, ()) if label in of}

    def quantile(self, share: float, name: str, **labels: str) -> float | None:
        """What this share of all observations since the start did not exceed.

        As Prometheus's histogram_quantile: straight between the bounds of a bucket.

        Args:
            share: 0.99 for the slowest hundredth.
            name: of the histogram, without `_bucket`.
            labels: which of its series.

        Returns:
            In the histogram's unit, seconds in etcd; None where nothing was observed; infinity
            beyond the last bucket's bound.
        """
        counts: dict[float, float] = defaultdict(float)
        for of, count in self._rows(f"{name}_bucket", labels):
            counts[float(of.get("le", "nan"))] += count
        total = counts.get(math.inf, 0.0)
        if not total:
            return None
        wanted, below, lower = share * total, 0.0, 0.0
        for bound, count in sorted(counts.items()):
            if count >= wanted:
                if math.isinf(bound):
                    return math.inf
                return lower + (bound - lower) * (wanted - below) / (count - below)
            below, lower = count, bound
        return math.inf

    def count(self, name: str, **labels: str) -> float:
        """How many observations a histogram has had since the start."""
        return self.value(f"{name}_count", **labels) or 0.0

    def series(self, name: str, label: str) -> tuple[str, ...]:
        """The values that a label of a histogram has."""
        rows = self.samples.get(f"{name}_bucket", ())
        return tuple(sorted({of[label] for of, _ in rows if label in of}))

    def _rows(self, name: str, labels: Labels) -> Iterator[tuple[Labels, float]]:
        for of, value in self.samples.get(name, ()):
            if all(of.get(key) == wanted for key, wanted in labels.items()):
                yield of, value
