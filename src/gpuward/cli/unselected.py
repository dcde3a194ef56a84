"""What helps a node that no NVIDIADriver selects, and that nobody can try on paper."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote
from typing import Final

from gpuward.cli.look import Picture
from gpuward.model.unserved import NotSelected
from gpuward.model.views import NodeView
from gpuward.policy.refused import ending, left_by, why_refused
from gpuward.upgrade.remedies import Remedy
from gpuward.upgrade.remedies.fixes import DecisionFacts

MOST: Final = 3
"""NVIDIADrivers to correct that are named."""
SELECTORS: Final = ("kubectl get nvidiadrivers -o "
                    "custom-columns=NAME:.metadata.name,SELECTS:.spec.nodeSelector,DEFAULT:.spec.default")


def corrections(what: NotSelected, picture: Picture, after: DecisionFacts) -> Iterator[Remedy]:
    """Return what is wrong with NVIDIADrivers of which nobody knows which nodes they select."""
    for name in what.refused[:MOST]:
        yield Remedy(f"correct NVIDIADriver {name}: {why_refused(picture.drivers, name)}",
                     "it is known then which nodes it selects, and whether this is one of them",
                     (f"kubectl edit nvidiadriver {quote(name)}",), after)


def made_anew(node: NodeView, picture: Picture, after: DecisionFacts) -> Iterator[Remedy]:
    """Return what helps where an NVIDIADriver selects the node that is being deleted: nobody can take a deletion back."""
    for each in left_by(node.name, picture.drivers, picture.snapshot)[:MOST]:
        name = quote(each.view.name)
        yield Remedy(f"NVIDIADriver {ending(each.view)}: write it anew once it is gone", "its driver comes from that",
                     (f"kubectl get nvidiadriver {name} -o yaml",), after,
                     "a finalizer that is taken off by hand leaves undone what it was there for")


def selection(node: NodeView, after: DecisionFacts) -> Remedy:
    """Return how a node gets a driver that no label of people's makes an NVIDIADriver select."""
    return Remedy("create an NVIDIADriver that selects the node, or widen the nodeSelector of one that is there",
                  "its driver comes from that", (SELECTORS, f"kubectl get node {quote(node.name)} --show-labels"), after)
