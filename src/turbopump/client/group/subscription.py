"""What a group subscribes to in a topic: tags, an SQL92 expression over properties, or a filter module.

Brokers and other members must see the same expression. It is parsed here, so a wrong one is refused at once.
"""

from dataclasses import dataclass, field

from turbopump.client.errors import InvalidArgument
from turbopump.filter import ALL, OR, BadExpression, BadTags, compile_sql, tags_of, wanted_tags
from turbopump.protocol import bodies
from turbopump.protocol.hashing import java_hash
from turbopump.protocol.names import MODULE_NAME, SQL92, TAG, WASM

__all__ = ["ALL", "OR", "TAGS_OR", "Subscription", "parse_expression"]

TAGS_OR = f" {OR} "


def parse_expression(tags: str, sql: str | None, module: str | None) -> tuple[str, str]:
    """Returns (expression, kind), TAG, SQL92 or WASM, of a user's subscription. Raises InvalidArgument.

    Raises InvalidArgument, which says what is wrong where.
    """
    if sum((tags not in ("", ALL), sql is not None, module is not None)) > 1:
        raise InvalidArgument("only one of tags, sql and module may be given: SQL can test the property TAGS")
    if module is not None:
        if not MODULE_NAME.fullmatch(module):
            raise InvalidArgument(f"module must be at most 64 letters, digits, _ and -, got {module!r}")
        return module, WASM
    if sql is None:
        return _checked(tags), TAG
    if not sql.strip():
        raise InvalidArgument("sql must not be empty: for all messages leave it out")
    try:
        compile_sql(sql)
    except BadExpression as bad:
        raise InvalidArgument(f"sql: {bad}") from None
    return sql, SQL92


def _checked(tags: str) -> str:
    try:
        wanted_tags(tags)
    except BadTags as bad:
        raise InvalidArgument(f"tags: {bad}") from None
    return tags or ALL


@dataclass(frozen=True, slots=True)
class Subscription:
    """A topic, and which of its messages a group wants: by tags, SQL92 or a filter module."""

    topic: str
    expression: str = ALL
    version: int = 0
    """Milliseconds; it grows with each change. A broker that does not know it yet refuses pulls."""
    kind: str = TAG
    tags: tuple[str, ...] = field(init=False)
    """Empty: all messages, or those that the broker chooses by SQL or a module."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "tags", tags_of(self.expression) if self.kind == TAG else ())

    @property
    def text(self) -> str:
        return self.expression.strip() or ALL

    def wants(self, tag: str | None) -> bool:
        """Returns whether the tags of the subscription include `tag`; True if it has none, such as with SQL.

        The text is compared, because the broker compared only its hash.
        """
        return not self.tags or tag in self.tags

    def to_wire(self) -> bodies.SubscriptionData:
        return bodies.SubscriptionData(
            topic=self.topic,
            subString=self.text,
            subVersion=self.version,
            tagsSet=list(self.tags),
            codeSet=[java_hash(tag) for tag in self.tags],
            expressionType=self.kind,
        )
