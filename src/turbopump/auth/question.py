"""The question "may this user do this?", as people ask it, and its answer with reasons.

In: names of a user, an action and a resource, an address. Out: whether it is allowed and by what, from the
same needs and the same `Access` that decide about requests. Raises InvalidParameter for words that no policy
could have. Never a secret.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from turbopump.auth.access import Access, Source
from turbopump.auth.policies import Explanation, address_of
from turbopump.auth.resources import ACTIONS, STAR, TYPES, Action, Need, Resource, ResourceType
from turbopump.auth.rules import topic_needs
from turbopump.protocol.errors import InvalidParameter

MAX_WORD = 255  # characters of a name
NOT_ASKED = frozenset({Action.ALL, Action.ANY})


@dataclass(frozen=True, slots=True)
class AccessQuestion:
    """Whether a user may do an action on a resource from an address."""

    user: str
    needs: Sequence[Need]
    source: Source

    @classmethod
    def of(cls, user: str, action: str, resource: str, address: str, cluster: str) -> "AccessQuestion":
        """Reads the words of a question. Raises InvalidParameter, which says what they must be."""
        if not user.strip() or len(user) > MAX_WORD:
            raise InvalidParameter(f"user must be a name of at most {MAX_WORD} characters, got {user[:40]!r}")
        done = {text: one for text, one in ACTIONS.items() if one not in NOT_ASKED}
        if action not in done:
            raise InvalidParameter(f"action must be one of {', '.join(done)}, got {action[:40]!r}")
        if address_of(address) is None:
            raise InvalidParameter(f"source must be an IP address, got {address[:60]!r}")
        return cls(user, _needs(resource, done[action], cluster), Source(address))

    def answer(self, access: Access) -> Explanation:
        """Returns whether it is allowed; of several needs the first that is not met, else the last one."""
        found = [access.explain(self.user, need, self.source) for need in self.needs]
        return next((one for one in found if not one.is_allowed), found[-1])


def _needs(resource: str, action: Action, cluster: str) -> Sequence[Need]:
    kind, _, name = resource.partition(":")
    if kind not in TYPES or not name or STAR in name or len(name) > MAX_WORD:
        kinds = ", ".join(f"{one}:NAME" for one in TYPES)
        raise InvalidParameter(f"resource must be one of {kinds}, with one name, got {resource[:60]!r}")
    if TYPES[kind] is ResourceType.TOPIC:
        return topic_needs(name, cluster, action)
    return (Need(Resource(TYPES[kind], name), (action,)),)
