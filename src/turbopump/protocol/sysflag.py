"""Bits of the `sysFlag` fields of messages (stored in their records), of pull requests and of topics."""

COMPRESSED = 0x1
MULTI_TAGS = 0x2

TRANSACTION_MASK = 0xC
NOT_TRANSACTIONAL = 0x0
PREPARED = 0x4
COMMIT = 0x8
ROLLBACK = 0xC

BORN_V6 = 0x10
STORE_V6 = 0x20
HOSTS_MASK = BORN_V6 | STORE_V6

NEED_UNWRAP = 0x40
INNER_BATCH = 0x80

COMPRESSION_MASK = 0x700
LZ4 = 0x100
ZSTD = 0x200
ZLIB = 0x300
"""Set by newer clients; older ones leave 0, which means zlib too."""

UNIT = 0x1
UNIT_SUBSCRIBED = 0x2

PULL_COMMIT_OFFSET = 0x1
PULL_SUSPEND = 0x2
PULL_SUBSCRIPTION = 0x4
PULL_CLASS_FILTER = 0x8
PULL_LITE = 0x10


def transaction_type(sys_flag: int) -> int:
    """Returns NOT_TRANSACTIONAL, PREPARED, COMMIT or ROLLBACK."""
    return sys_flag & TRANSACTION_MASK


def with_transaction_type(sys_flag: int, kind: int) -> int:
    return sys_flag & ~TRANSACTION_MASK | kind


def compression_kind(sys_flag: int) -> int:
    """Returns LZ4, ZSTD or ZLIB (also for 0); an unknown value is returned unchanged."""
    return sys_flag & COMPRESSION_MASK or ZLIB
