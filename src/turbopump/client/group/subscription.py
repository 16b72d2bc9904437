"""What a group wants of a topic: an expression over tags, as brokers and other members must see it, one in
SQL92 over properties, or the name of a filter module, by which the broker chooses. That an expression can be
read is known here already.
"""

from dataclasses import dataclass, field

from turbopump.client.errors import InvalidArgument
from turbopump.filter import ALL, OR, BadExpression, BadTags, compile_sql, tags_of, wanted_tags
from turbopump.protocol import bodies
from turbopump.protocol.hashing import java_hash
from turbopump.protocol.names import MODULE_NAME, SQL92, TAG, WASM

__all__ = ["ALL", "OR", "TAGS_OR", "Subscription", "choice"]

TAGS_OR = f" {OR} "


def choice(tags: str, sql: str | None, module: str | None) -> tuple[str, str]:
    """Expression and kind of what is wanted; InvalidArgument says what is wrong with it, and where."""
    if sum((tags not in ("", ALL), sql is not None, module is not None)) > 1:
        raise InvalidArgument("give one of tags, sql and module: SQL can test the property TAGS")
    if module is not None:
        if not MODULE_NAME.fullmatch(module):
            raise InvalidArgument(
                f"a module is named by letters, digits, _ and -, at most 64: not {module!r}"
            )
        return module, WASM
    if sql is None:
        return _checked(tags), TAG
    if not sql.strip():
        raise InvalidArgument("sql must not be empty; for all messages leave it out")
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
    topic: str
    expression: str = ALL
    version: int = 0
    """Milliseconds; higher when something changed. A broker that has not heard of it yet refuses pulls."""
    kind: str = TAG
    tags: tuple[str, ...] = field(init=False)
    """Empty: everything, or what the broker chooses otherwise."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "tags", tags_of(self.expression) if self.kind == TAG else ())

    @property
    def text(self) -> str:
        return self.expression.strip() or ALL

    def wants(self, tag: str | None) -> bool:
        """The broker compares hashes of tags; only the text is sure."""
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
