"""Deprecated: the former name of `observe/telemetry.py`, kept for programs that import it."""

import warnings
from typing import Any

NAMES = frozenset({"SendTelemetry", "ConsumeTelemetry", "ReceiveTelemetry"})


def __getattr__(name: str) -> Any:
    if name not in NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from turbopump.client.observe import telemetry

    warnings.warn(
        f"turbopump.client.telemetry.{name} is deprecated: use turbopump.client.observe.telemetry.{name}",
        DeprecationWarning,
        stacklevel=2,
    )
    return getattr(telemetry, name)
