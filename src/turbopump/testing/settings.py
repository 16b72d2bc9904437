"""Settings of an embedded cluster's brokers, checked when the cluster is created."""

import difflib
from collections.abc import Mapping

from turbopump.broker import settings

DECIDED = frozenset(
    {"brokerName", "brokerClusterName", "brokerId", "listenPort", "namesrvAddr", "brokerIP1", "bindAddress"}
)
"""Keys that the cluster sets itself: names and addresses of its brokers."""


def checked(given: Mapping[str, str | bool | float]) -> dict[str, str]:
    """Returns broker settings with values as text; checks only keys and types of values. Raises ValueError.

    >>> checked({"autoCreateTopicEnable": False, "maxMessageSize": 1024})
    {'autoCreateTopicEnable': 'false', 'maxMessageSize': '1024'}
    """
    return {key: _checked(key, value) for key, value in given.items()}


def _checked(key: str, value: object) -> str:
    if key in DECIDED:
        raise ValueError(f"{key} is set by the cluster; leave it out")
    row = settings.SETTINGS.get(settings.canonical(key))
    if row is None:
        raise ValueError(_unknown(key))
    if row.path.startswith("tls."):
        raise ValueError(f"{key} has no effect here: connections of an embedded cluster are plain")
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    raise ValueError(f"{key} must be text, a number or True or False, got {value!r}")


def _unknown(key: str) -> str:
    if key in settings.WITHOUT_EFFECT or key in settings.LATER or key in settings.FIXED:
        return f"{key} has no effect here: see docs/configuration.md"
    near = difflib.get_close_matches(key, settings.SETTINGS, n=1)
    return f"a broker has no setting {key}" + (f"; did you mean {near[0]}?" if near else "")
