"""The grammar of tag expressions: `paid || shipped`, and `*` for every message.

In: the text of a subscription. Out: the tags that it names. Brokers, clients and pipelines all read it here.
`tags_of` is for texts that others wrote and never fails; `wanted_tags` is for what a user asks for, and
refuses what would silently match nothing.
"""

from collections.abc import Iterable

from turbopump.filter.errors import BadTags

ALL = "*"
OR = "||"


def tags_of(expression: str) -> tuple[str, ...]:
    """The tags of an expression, in its order; empty: every message, or none is named."""
    found = tuple(tag for part in expression.split(OR) if (tag := part.strip()))
    return () if found == (ALL,) else found


def wanted_tags(wanted: str | Iterable[str]) -> tuple[str, ...]:
    """The tags of an expression or of several, each once; empty: every message. Raises BadTags."""
    expressions = [wanted] if isinstance(wanted, str) else list(wanted)
    return tuple(dict.fromkeys(tag for one in expressions for tag in _checked(one)))


def _checked(expression: str) -> tuple[str, ...]:
    found = tags_of(expression)
    if ALL in found:
        raise BadTags(f"tags must be * alone or tags such as a || b, got {expression!r}")
    if not found and OR in expression:
        raise BadTags(f"tags must be tags such as a || b, or * for every message, got {expression!r}")
    return found


def text_of(tags: Iterable[str]) -> str:
    """The expression that names these tags; `*` for none."""
    return f" {OR} ".join(tags) or ALL
