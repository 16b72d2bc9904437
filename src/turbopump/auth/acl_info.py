"""Policies in the form of requests 3006 to 3010: a subject, and entries as texts.

In: an `AclInfo` of a tool. Out: entries, or the refusal with Apache's text; and the way back.
"""

from collections.abc import Iterable, Iterator

from turbopump.auth.policies import Policies, PolicyDecision, PolicyEntry, PolicyType, networks_of
from turbopump.auth.resources import ResourcePattern, actions_of
from turbopump.protocol.bodies import AclEntry, AclInfo, AclPolicy
from turbopump.protocol.errors import NoPermission, SystemFailure

SUBJECT = "User:"
_DECISIONS = {decision.text: decision for decision in PolicyDecision}
_TYPES = {kind.text: kind for kind in PolicyType}

NewEntry = tuple[PolicyType, PolicyEntry]


def user_of(subject: str | None) -> str:
    """Returns the name in a subject such as `User:orders`. Raises NoPermission for other subjects."""
    kind, name = (subject or "")[: len(SUBJECT)], (subject or "")[len(SUBJECT) :]
    if kind != SUBJECT or not name.strip():
        raise NoPermission("The subject is null.")
    return name


def policy_type_of(text: str | None) -> PolicyType:
    """Returns the type with this name: Custom without one. Raises NoPermission for an unknown name."""
    if not text:
        return PolicyType.CUSTOM
    kind = _TYPES.get(text)
    if kind is None:
        raise NoPermission(f"The policy type must be Custom or Default, got {text[:40]!r}.")
    return kind


def entries_of(info: AclInfo) -> list[NewEntry]:
    """Returns the entries of a request. Raises Refused for one that cannot be read, and for none."""
    entries = list(_entries_of(info.policies or ()))
    if not entries:
        raise SystemFailure("AuthorizationException: The body of acl is null")
    return entries


def _entries_of(policies: Iterable[AclPolicy]) -> Iterator[NewEntry]:
    for policy in policies:
        kind = policy_type_of(policy.policyType)
        for entry in policy.entries or ():
            yield kind, entry_of(entry)


def entry_of(entry: AclEntry) -> PolicyEntry:
    """Returns one entry of a request. Raises NoPermission, with Apache's text, if it cannot be read."""
    resource = ResourcePattern.parse(entry.resource or "")
    actions = actions_of(entry.actions or ())
    decision = _DECISIONS.get(entry.decision or "")
    sources = networks_of(entry.sourceIps or ())
    if decision is None:
        raise NoPermission("The decision is null or illegal.")
    return PolicyEntry(resource, actions, decision, sources)


def info_of(name: str, policies: Policies, resource_part: str = "") -> AclInfo | None:
    """Returns the policies of a user whose resource has a text in it; None if there are none."""
    found = [
        AclPolicy(entries=entries, policyType=kind.text)
        for kind in PolicyType
        if (entries := [_text_of(one) for one in policies.of(kind) if resource_part in str(one.resource)])
    ]
    return AclInfo(policies=found, subject=f"{SUBJECT}{name}") if found else None


def _text_of(entry: PolicyEntry) -> AclEntry:
    return AclEntry(
        actions=[action.text for action in entry.actions],
        decision=entry.decision.text,
        resource=str(entry.resource),
        sourceIps=[_network_text(network) for network in entry.sources] or None,
    )


def _network_text(network: object) -> str:
    text = str(network)
    return text.removesuffix("/32") if "." in text else text.removesuffix("/128")
