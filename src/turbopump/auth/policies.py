"""Policies of access control 2.0: entries that allow or deny actions on resources, and which of them decides.

An entry counts when its resource, one of the needed actions (or `All`) and the source address match. Custom
entries decide before default ones; among those of a kind the most exact resource decides, and of two equally
exact ones the denial. Without an entry that counts the answer is no.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from turbopump.auth.resources import Action, Need, ResourcePattern
from turbopump.protocol.errors import NoPermission

Network = IPv4Network | IPv6Network


class PolicyType(IntEnum):
    """Custom entries decide; default ones where no custom entry counts. Apache's numbers."""

    CUSTOM = 1
    DEFAULT = 2

    @property
    def text(self) -> str:
        return self.name.capitalize()


class Decision(IntEnum):
    """What an entry says. Apache's numbers."""

    ALLOW = 1
    DENY = 2

    @property
    def text(self) -> str:
        return self.name.capitalize()


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a policy. `sources` are networks; without any, all addresses match."""

    resource: ResourcePattern
    actions: tuple[Action, ...]
    decision: Decision
    sources: tuple[Network, ...] = ()

    def counts(self, need: Need, source: str) -> bool:
        """Returns whether this entry decides about a need of a request from the address `source`."""
        if not self.resource.matches(need.resource):
            return False
        if Action.ALL not in self.actions and not set(self.actions) & set(need.any_of):
            return False
        return not self.sources or is_within(source, self.sources)


@dataclass(frozen=True, slots=True)
class Policies:
    """All policies of one user. An entry of the same type and resource replaces the one before."""

    custom: tuple[Entry, ...] = ()
    default: tuple[Entry, ...] = ()

    def of(self, kind: PolicyType) -> tuple[Entry, ...]:
        return self.custom if kind is PolicyType.CUSTOM else self.default


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a need is met, and why: the entry that decided, None when no entry counts."""

    is_allowed: bool
    entry: Entry | None = field(default=None)

    @property
    def reason(self) -> str:
        if self.entry is None:
            return "no matched policies"
        return f"the decision is {self.entry.decision.text.lower()}"


def decide(policies: Policies, need: Need, source: str) -> Verdict:
    """Decides about one need of a request that came from the address `source`."""
    for entries in (policies.custom, policies.default):
        counting = [entry for entry in entries if entry.counts(need, source)]
        if counting:
            entry = min(counting, key=_rank)
            return Verdict(entry.decision is Decision.ALLOW, entry)
    return Verdict(is_allowed=False)


def _rank(entry: Entry) -> tuple[tuple[bool, int, int], bool]:
    return entry.resource.rank, entry.decision is Decision.ALLOW


def networks_of(texts: Iterable[str]) -> tuple[Network, ...]:
    """Parses addresses and CIDR networks. Raises NoPermission, as Apache answers such requests."""
    try:
        return tuple(ip_network(text.strip(), strict=False) for text in texts)
    except ValueError:
        raise NoPermission("The source ip is invalid.") from None


def is_within(address: str, networks: Sequence[Network]) -> bool:
    """Returns whether an address is in one of the networks; False for what is no address."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if found.version == 6 and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    return any(found in network for network in networks)
