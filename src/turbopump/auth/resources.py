"""Resources and actions of access control, and the texts in which policies name them.

    *              everything
    Topic:*        every topic
    Topic:orders   one topic
    Topic:ord*     topics whose name begins with `ord`

Types are `Cluster`, `Namespace`, `Topic` and `Group`; all texts are case-sensitive. Numbers are Apache's.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum

from turbopump.protocol.errors import NoPermission

STAR = "*"


class ResourceType(IntEnum):
    """Kind of a resource, with Apache's number."""

    ANY = 1
    CLUSTER = 2
    NAMESPACE = 3
    TOPIC = 4
    GROUP = 5


class Pattern(IntEnum):
    """How a policy names resources, with Apache's number; a smaller rank decides before a greater one."""

    ANY = 1
    LITERAL = 2
    PREFIXED = 3


class Action(IntEnum):
    """What somebody does with a resource, with Apache's number."""

    ALL = 1
    ANY = 2
    PUB = 3
    SUB = 4
    CREATE = 5
    UPDATE = 6
    DELETE = 7
    GET = 8
    LIST = 9

    @property
    def text(self) -> str:
        return self.name.capitalize()


ACTIONS = {action.text: action for action in Action}
TYPES = {kind.name.capitalize(): kind for kind in ResourceType if kind is not ResourceType.ANY}


@dataclass(frozen=True, slots=True)
class Resource:
    """One thing that a request touches: a topic, a group or the cluster, by name."""

    type: ResourceType
    name: str

    def __str__(self) -> str:
        return f"{self.type.name.capitalize()}:{self.name}"


@dataclass(frozen=True, slots=True)
class ResourcePattern:
    """The resources that an entry of a policy is about."""

    type: ResourceType
    pattern: Pattern
    name: str = ""
    """The name, or the beginning of names; empty for a pattern that matches every name."""

    @classmethod
    def parse(cls, text: str) -> "ResourcePattern":
        """Parses a text such as `Topic:ord*`. Raises NoPermission, as Apache answers such requests."""
        if text == STAR:
            return cls(ResourceType.ANY, Pattern.ANY)
        kind, colon, name = text.partition(":")
        if not colon or kind not in TYPES or not name:
            raise NoPermission("The resource is null.")
        if name.startswith(STAR):
            return cls(TYPES[kind], Pattern.ANY)
        if STAR in name:
            return cls(TYPES[kind], Pattern.PREFIXED, name.partition(STAR)[0])
        return cls(TYPES[kind], Pattern.LITERAL, name)

    def __str__(self) -> str:
        if self.type is ResourceType.ANY:
            return STAR
        name = {Pattern.ANY: STAR, Pattern.LITERAL: self.name, Pattern.PREFIXED: f"{self.name}{STAR}"}
        return f"{self.type.name.capitalize()}:{name[self.pattern]}"

    def matches(self, resource: Resource) -> bool:
        if self.type not in (ResourceType.ANY, resource.type):
            return False
        if self.pattern is Pattern.LITERAL:
            return self.name == resource.name
        return resource.name.startswith(self.name)

    @property
    def rank(self) -> tuple[bool, int, int]:
        """Sort key: of two patterns that match a resource, the one with the smaller rank decides."""
        order = (Pattern.LITERAL, Pattern.PREFIXED, Pattern.ANY).index(self.pattern)
        return self.type is ResourceType.ANY, order, -len(self.name)


@dataclass(frozen=True, slots=True)
class Need:
    """What a request needs: at least one of `any_of` on `resource`. A request may have several needs."""

    resource: Resource
    any_of: tuple[Action, ...]
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Every request looks its needs up in a table: computed once, this takes 0.1 µs instead of 0.6.
        object.__setattr__(self, "_hash", hash((self.resource, self.any_of)))

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        return f"{'/'.join(action.text for action in self.any_of)} on {self.resource}"


def topic(name: str, *any_of: Action) -> Need:
    return Need(Resource(ResourceType.TOPIC, name), any_of)


def group(name: str, *any_of: Action) -> Need:
    return Need(Resource(ResourceType.GROUP, name), any_of)


def cluster(name: str, *any_of: Action) -> Need:
    return Need(Resource(ResourceType.CLUSTER, name), any_of)


def actions_of(texts: Iterable[str]) -> tuple[Action, ...]:
    """Parses names of actions. Raises NoPermission for an unknown one, for none, and for `Any`."""
    texts = tuple(texts)
    unknown = [text for text in texts if text not in ACTIONS]
    if not texts or unknown:
        raise NoPermission("The actions is empty.")
    if Action.ANY.text in texts:
        raise NoPermission("The actions can not be Any.")
    return tuple(dict.fromkeys(ACTIONS[text] for text in texts))
