"""The grammar of tag expressions: `paid || shipped`, and `*` for every message.

In: the text of a subscription. Out: its tags. Brokers, clients and pipelines all use these functions.
`tags_of` is for text from peers and never fails; `wanted_tags` is for text from users, and refuses what would
silently match nothing.
"""

from collections.abc import Iterable

from turbopump.filter.errors import BadTags

ALL = "*"
OR = "||"


def tags_of(expression: str) -> tuple[str, ...]:
    """Returns the tags of an expression, in its order; empty: every message, or no tag is named."""
    found = tuple(tag for part in expression.split(OR) if (tag := part.strip()))
    return () if found == (ALL,) else found


def wanted_tags(wanted: str | Iterable[str]) -> tuple[str, ...]:
    """Returns the tags of one or several expressions, each once; empty: every message. Raises BadTags."""
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
    """Returns the expression for these tags; `*` for none."""
    return f" {OR} ".join(tags) or ALL
