"""How many nodes of each domain are out of service, and whether one more node may be: across the fleets of all policies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from gpuward.model.domains import DomainLimit, DomainMode, DomainSettings, LargeDomain
from gpuward.model.listing import some_of
from gpuward.model.reasons import Reason

Rank = tuple[bool, int, str]


class DomainUse(msgspec.Struct, frozen=True):
    """Hold how the domains of the cluster stand; nothing of it where nobody says what a domain is."""

    sizes: Mapping[str, int] = {}
    """How many nodes of each are one policy's."""
    out: Mapping[str, frozenset[str]] = {}
    """Their nodes that are out of service; no domain without any."""
    under_way: frozenset[str] = frozenset()
    """Domains with nodes under way."""
    half_done: frozenset[str] = frozenset()
    """Domains of which some nodes have the driver that others wait for, one of which goes on by itself."""
    pods: Mapping[str, int] = {}
    """How many pods have to leave their nodes that wait."""
    stuck: frozenset[str] = frozenset()
    """Nodes that stay out of service until somebody does something."""

    def with_others(self, others: Iterable[DomainUse]) -> DomainUse:
        """Return it with what nodes of other policies do in the same domains."""
        out, pods = dict(self.out), Counter(self.pods)
        under_way, half_done, stuck = set(self.under_way), set(self.half_done), set(self.stuck)
        for other in others:
            for domain, nodes in other.out.items():
                out[domain] = out.get(domain, frozenset()) | nodes
            under_way |= other.under_way
            half_done |= other.half_done
            stuck |= other.stuck
            pods.update(other.pods)
        return msgspec.structs.replace(self, out=out, under_way=frozenset(under_way), half_done=frozenset(half_done),
                                       pods=pods, stuck=frozenset(stuck))

    def admitted(self, node: str, domains: Iterable[str]) -> DomainUse:
        """Return it with one more node under way."""
        domains = tuple(domains)
        out = {**self.out, **{domain: self.out.get(domain, frozenset()) | {node} for domain in domains}}
        return msgspec.structs.replace(
            self, out=out, under_way=self.under_way | set(domains), stuck=self.stuck - {node})

    def rank(self, domains: Iterable[str]) -> Rank:
        """Return the sort key of a node's domain: those that were begun first, then those that cost the least."""
        return min((domain not in self.under_way and domain not in self.half_done, self.pods.get(domain, 0), domain)
                   for domain in domains)

    def large(self, domains: Iterable[str], limit: int) -> LargeDomain | None:
        """Return the first of a node's domains that has more nodes than a limit."""
        found = ((domain, self.sizes.get(domain, 0)) for domain in domains)
        return next((LargeDomain(domain, size) for domain, size in found if size > limit), None)


NO_DOMAINS = DomainUse()


def in_the_way(settings: DomainSettings, use: DomainUse, node: str, domains: Iterable[str]) -> DomainLimit | None:
    """Return why a node in service may not be taken out of it."""
    found = _too_many_nodes if settings.mode is DomainMode.SPREAD else _too_many_domains
    return next((held for domain in domains if (held := found(settings.max, use, node, domain)) is not None), None)


def _too_many_nodes(limit: int, use: DomainUse, node: str, domain: str) -> DomainLimit | None:
    others = use.out.get(domain, frozenset()) - {node}
    if len(others) < limit:
        return None
    return DomainLimit(_reason(len(others & use.stuck) >= limit), domain, len(others), limit, some_of(others))


def _too_many_domains(limit: int, use: DomainUse, node: str, domain: str) -> DomainLimit | None:
    """Hold a domain that would be one too many out of service, or that would overtake one which is half done.

    One that is under way goes on although others broke meanwhile: that disturbs no further one. One that is half done and could
    not go on for these keeps nobody waiting.
    """
    disturbed = use.out.keys() - {domain}
    goes_on = domain in use.under_way and len(use.under_way) <= limit
    first = use.under_way | {each for each in use.half_done if len(use.out.keys() - {each}) < limit}
    if (len(disturbed) < limit or goes_on) and (domain in first or len(first) < limit):
        return None
    counted = disturbed if len(disturbed) >= limit and not goes_on else first - {domain}
    nodes = {each for other in counted for each in use.out.get(other, ())} - {node}
    broken = [other for other in counted if other not in first and use.out.get(other, frozenset()) <= use.stuck]
    return DomainLimit(_reason(len(broken) >= limit), domain, len(counted), limit, some_of(nodes), some_of(counted))


def _reason(broken: bool) -> Literal[Reason.DOMAIN_LIMIT, Reason.DOMAIN_BROKEN]:
    return Reason.DOMAIN_BROKEN if broken else Reason.DOMAIN_LIMIT

