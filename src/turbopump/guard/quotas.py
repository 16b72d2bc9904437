"""Quotas of users: bytes and requests in a second, and connections.

In: the sender, size and time of each request, and what a pull has read. Out: SYSTEM_BUSY for what is too
much. Each limit is a bucket of one second: it may be emptied at once, and a request that is larger than what
is left is served and paid later, so that one larger than the bucket is possible at all. Super users have a
quota only by name, not by `*`, and white addresses of 4.x too: servers are there.
"""

from collections import OrderedDict
from collections.abc import Mapping

from turbopump.auth.access import BY_ADDRESS, Identity
from turbopump.guard.config import UserQuota
from turbopump.protocol.errors import SystemBusy
from turbopump.remoting.connection import Connection

ANY_USER = "*"
MAX_USERS = 10_000  # users with a bucket; beyond it the one that was idle longest is dropped


class _Bucket:
    """What a user has left of this second."""

    __slots__ = ("bytes_left", "connections", "last", "requests_left")

    def __init__(self, quota: UserQuota, now: float) -> None:
        self.bytes_left = float(quota.bytes_per_s)
        self.requests_left = float(quota.requests_per_s)
        self.last = now
        self.connections: set[Connection] = set()

    def refill(self, quota: UserQuota, now: float) -> None:
        passed_s, self.last = max(0.0, now - self.last), now
        self.bytes_left = min(self.bytes_left + passed_s * quota.bytes_per_s, quota.bytes_per_s)
        self.requests_left = min(self.requests_left + passed_s * quota.requests_per_s, quota.requests_per_s)


class UserQuotas:
    """Counts what users send, and refuses what is beyond their quotas."""

    def __init__(self, quotas: Mapping[str, UserQuota]) -> None:
        self._quotas = dict(quotas)
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def __bool__(self) -> bool:
        """Returns whether there are quotas at all."""
        return bool(self._quotas)

    def take(self, identity: Identity, size: int, connection: Connection, now: float) -> bool:
        """Counts a request with `size` bytes of body; returns whether its sender has a quota.

        Raises SystemBusy when it is beyond the quota.
        """
        if not self._quotas:
            return False
        quota = self._quota(identity)
        if quota is None:
            return False
        name = identity.name
        bucket = self._bucket(name, quota, now)
        bucket.refill(quota, now)
        self._count(name, quota, bucket, connection)
        if quota.requests_per_s and bucket.requests_left < 1:
            raise _too_much(name, f"{quota.requests_per_s} requests in a second")
        if quota.bytes_per_s and bucket.bytes_left <= 0:
            raise _too_much(name, f"{quota.bytes_per_s} bytes in a second")
        bucket.requests_left -= 1
        bucket.bytes_left -= size
        return True

    def charge(self, name: str, size: int) -> None:
        """Counts bytes that a user was sent; they are paid before its next request is served."""
        bucket = self._buckets.get(name)
        if bucket is not None:
            bucket.bytes_left -= size

    def give_back(self, identity: Identity, size: int) -> None:
        """Takes back that a request was counted: it is counted again when it is served."""
        bucket = self._buckets.get(identity.name)
        if bucket is not None:
            bucket.requests_left += 1
            bucket.bytes_left += size

    def _quota(self, identity: Identity) -> UserQuota | None:
        own = self._quotas.get(identity.name)
        is_free = identity.is_super or identity.by == BY_ADDRESS
        return own if own is not None or is_free else self._quotas.get(ANY_USER)

    def _bucket(self, name: str, quota: UserQuota, now: float) -> _Bucket:
        bucket = self._buckets.get(name)
        if bucket is None:
            bucket = self._buckets[name] = _Bucket(quota, now)
            if len(self._buckets) > MAX_USERS:
                self._drop_idle()
        self._buckets.move_to_end(name)
        return bucket

    def _drop_idle(self) -> None:
        """Drops the bucket of the user that was idle longest; one without a connection if there is one."""
        idle = next((name for name, bucket in self._buckets.items() if not bucket.connections), None)
        del self._buckets[next(iter(self._buckets)) if idle is None else idle]

    def _count(self, name: str, quota: UserQuota, bucket: _Bucket, connection: Connection) -> None:
        if not quota.connections or connection in bucket.connections:
            return
        if len(bucket.connections) >= quota.connections:
            raise _too_much(name, f"{quota.connections} connections")
        bucket.connections.add(connection)
        connection.on_closed.append(bucket.connections.discard)


def _too_much(name: str, limit: str) -> SystemBusy:
    return SystemBusy(f"[QUOTA] User:{name} may have {limit}; try again later")
