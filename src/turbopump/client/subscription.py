"""What a group wants of a topic: an expression over tags, as brokers and other members must see it."""

from dataclasses import dataclass

from turbopump.protocol import bodies
from turbopump.protocol.hashing import java_hash

ALL = "*"
OR = "||"


@dataclass(frozen=True, slots=True)
class Subscription:
    topic: str
    expression: str = ALL
    version: int = 0
    """Milliseconds; higher when something changed. A broker that has not heard of it yet refuses pulls."""

    @property
    def tags(self) -> tuple[str, ...]:
        """Empty: everything."""
        if self.expression.strip() in ("", ALL):
            return ()
        return tuple(tag for part in self.expression.split(OR) if (tag := part.strip()))

    def wants(self, tag: str | None) -> bool:
        """The broker compares hashes of tags; only the text is sure."""
        tags = self.tags
        return not tags or tag in tags

    def to_wire(self) -> bodies.SubscriptionData:
        return bodies.SubscriptionData(
            topic=self.topic,
            subString=self.expression.strip() or ALL,
            subVersion=self.version,
            tagsSet=list(self.tags),
            codeSet=[java_hash(tag) for tag in self.tags],
        )
