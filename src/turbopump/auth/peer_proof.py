"""Proves on the replication port that a slave has the secret of a user.

In: the secret, the master's challenge and the greeting. Out: HMAC-SHA256 of both. The challenge is made for
one connection, so what is proved there is worth nothing on another one, nor later. The first bytes, and
another hash than that of requests, keep a false master from having requests signed as challenges.
"""

import hmac
from collections.abc import Iterable
from dataclasses import dataclass, field

PURPOSE = b"turbopump replication greeting\0"


@dataclass(frozen=True, slots=True)
class SignedGreeting:
    """A slave's greeting as it was sent, the challenge of its connection, and the proof made of both."""

    user: str
    proof: bytes = field(repr=False)
    nonce: bytes = field(repr=False)
    greeting: bytes = field(repr=False)

    def is_by(self, secrets: Iterable[str]) -> bool:
        """Returns whether the proof was made with one of the secrets, in constant time."""
        return any(
            hmac.compare_digest(greeting_proof(secret, self.nonce, self.greeting), self.proof)
            for secret in secrets
        )


def greeting_proof(secret: str, nonce: bytes, greeting: bytes) -> bytes:
    """Returns the proof for a greeting, as it was sent, on the connection with this challenge."""
    return hmac.digest(secret.encode(), b"".join((PURPOSE, nonce, greeting)), "sha256")
