"""What an answer comes to: whether node conditions or samples of a Prometheus let a check pass, fail, or say nothing."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from gpuward.model.analysis import FailWhen, Measurement, NodeCondition, Promql, Result
from gpuward.model.listing import MOST_NAMED, listed
from gpuward.model.views import NodeView

NODES: Final = "{{nodes}}"
"""Stands in a query for the nodes that are judged, as a regular expression within quotes."""
MOST_NODES: Final = 1000
"""Nodes that are named in a query."""
SHOWN: Final = 100
"""Characters of a query, and of labels, that are shown."""
NO_NODE: Final = "no node of the wave is in service"


class Sample(NamedTuple):
    """Hold one value of an instant vector."""

    labels: Mapping[str, str]
    value: float


class Answer(NamedTuple):
    """Hold the samples of an answer; None where there is none."""

    samples: tuple[Sample, ...] | None
    why: str = ""
    """Why there are none, or what the server warns of; without anything secret in it."""


def query_of(promql: Promql, nodes: Sequence[str]) -> str:
    """Return the query with the names of the judged nodes; a dot in a name stands for nothing but itself."""
    names = "|".join(re.sub(r"([.+])", r"\\\\\1", name) for name in nodes[:MOST_NODES])
    return promql.query.replace(NODES, names)


def of_samples(promql: Promql, answer: Answer, at: float, nodes: Sequence[str] = ()) -> Measurement:
    """Return what the answer to a query comes to. One sample that fails is enough, whatever else is missing."""
    asked = f"the query {_told(promql, nodes)}"
    if answer.samples is None:
        return Measurement(at, Result.UNKNOWN, f"{promql.server}: {answer.why}")
    failing = [sample for sample in answer.samples if promql.fail_when.fails(sample.value)]
    if failing:
        worst = _worst(promql.fail_when, failing)
        more = f", and {len(failing) - 1} more" if len(failing) > 1 else ""
        return Measurement(at, Result.FAILED, f"{asked} gave {_value(worst)}{more}, and {promql.fail_when} fails")
    if not answer.samples:
        return Measurement(at, Result.UNKNOWN, f"{promql.server} has no data for {asked}")
    if answer.why:
        return Measurement(at, Result.UNKNOWN, f"{promql.server} warns: {answer.why}")
    if any(math.isnan(sample.value) for sample in answer.samples):
        return Measurement(at, Result.UNKNOWN, f"{promql.server} answers NaN, which is no number, to {asked}")
    return Measurement(at, Result.PASSED, f"{asked} gave {_value(_worst(promql.fail_when, answer.samples))}")


def of_conditions(wanted: Iterable[NodeCondition], nodes: Sequence[NodeView], at: float) -> Measurement:
    """Return what conditions of nodes come to. A node that does not report one says nothing about it."""
    if not nodes:
        return Measurement(at, Result.UNKNOWN, NO_NODE)
    wanted = tuple(wanted)
    failing = [(node.name, one) for one in wanted for node in nodes if node.conditions.get(one.type) == one.status]
    if failing:
        name, one = failing[0]
        more = f", and {len(failing) - 1} more" if len(failing) > 1 else ""
        return Measurement(at, Result.FAILED, f"node {name} has {one}{more}")
    for one in wanted:
        silent = [node.name for node in nodes if node.conditions.get(one.type) not in ("True", "False")]
        if silent:
            return Measurement(at, Result.UNKNOWN, f"condition {one.type} is not reported, or Unknown, by "
                               f"{listed(silent, MOST_NAMED)}")
    return Measurement(at, Result.PASSED, f"no node has {' or '.join(map(str, wanted))}")


def _told(promql: Promql, nodes: Sequence[str]) -> str:
    """Return the query as it was asked, or with the place of the nodes where these would leave no room for the rest of it."""
    asked = query_of(promql, nodes)
    return _shown(asked if nodes and len(asked) <= SHOWN else promql.query)


def _worst(fails: FailWhen, samples: Sequence[Sample]) -> Sample:
    chosen = min if fails.operator in ("<", "<=") else max
    return chosen(samples, key=lambda sample: sample.value)


def _value(sample: Sample) -> str:
    labels = ", ".join(f'{key}="{value}"' for key, value in sorted(sample.labels.items()))
    return f"{sample.value:g}" + (f" {{{_shown(labels)}}}" if labels else "")


def _shown(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN else f"{line[:SHOWN]}..."
