"""Namespaces as a prefix of names: `NS%name` on the wire, `name` for the user.

Retry and dead-letter topics keep their prefix in front: `%RETRY%NS%group`. System names are never wrapped,
and a name that is wrapped already stays as it is.
"""

from turbopump.protocol import names

SEPARATOR = "%"


def wrap(namespace: str, name: str) -> str:
    """Returns the wire name of a topic or group: with the namespace's prefix, unless it is a system name.

    >>> wrap("shop", "orders"), wrap("shop", "%RETRY%billing"), wrap("shop", "shop%orders")
    ('shop%orders', '%RETRY%shop%billing', 'shop%orders')
    """
    if not namespace or not name or _is_of_system(name):
        return name
    prefix, bare = _split(name)
    if bare.startswith(namespace + SEPARATOR):
        return name
    return f"{prefix}{namespace}{SEPARATOR}{bare}"


def unwrap(namespace: str, name: str) -> str:
    """Returns the user's name of a topic or group, without the namespace's prefix; other names unchanged.

    >>> unwrap("shop", "shop%orders"), unwrap("shop", "%DLQ%shop%billing"), unwrap("shop", "bar%orders")
    ('orders', '%DLQ%billing', 'bar%orders')
    """
    if not namespace or _is_of_system(name):
        return name
    prefix, bare = _split(name)
    mark = namespace + SEPARATOR
    return prefix + bare.removeprefix(mark) if bare.startswith(mark) else name


def marks(namespace: str) -> dict[str, str]:
    """Returns the fields `nsd` and `ns` that each request has with a `namespace_v2`; without one, none."""
    return {"nsd": "true", "ns": namespace} if namespace else {}


def _split(name: str) -> tuple[str, str]:
    for prefix in (names.RETRY_PREFIX, names.DLQ_PREFIX):
        if name.startswith(prefix):
            return prefix, name.removeprefix(prefix)
    return "", name


def _is_of_system(name: str) -> bool:
    return names.is_system_topic(name) or names.is_system_group(name)
