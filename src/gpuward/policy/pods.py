"""Which pods matter under the upgrade policies in force: a fleet has many more, and keeping all would cost memory for nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from gpuward.model.policy import UpgradePolicy
from gpuward.model.selectors import PodSelection, matches
from gpuward.model.views import PodView
from gpuward.wire.pods import keep_pods


def selections(policies: Iterable[UpgradePolicy]) -> frozenset[PodSelection]:
    """Return which pods matter under any of these policies."""
    return frozenset(policy.pods for policy in policies)


def covers(followed: Collection[PodSelection] | None, policies: Iterable[UpgradePolicy]) -> bool:
    """Tell whether every pod that matters under these policies is known; `followed` is what the snapshot says of that."""
    return followed is not None and followed == selections(policies)


def pod_filter(namespace: str, selected: Collection[PodSelection]) -> Callable[[PodView], bool]:
    """Return the test of which pods are kept."""
    tests = [test for selection in sorted(selected) for test in _tests(selection)]
    return keep_pods(namespace, tests, holders=any(selection.holders for selection in selected))


def _tests(selection: PodSelection) -> list[Callable[[PodView], bool]]:
    tests: list[Callable[[PodView], bool]] = []
    if selector := selection.finishing:
        tests.append(lambda pod: matches(selector, pod.labels))
    if selection.drained:
        tests.append(lambda pod: not pod.of_daemonset)
    return tests
