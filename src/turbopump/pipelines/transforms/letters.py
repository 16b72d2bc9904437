"""Deprecated: the former name of `dead_letters`, kept for programs that import it."""

import warnings
from typing import Any

RENAMED = {"letters": "with_origin", "failures": "failures", "again": "to_resend"}
"""Function of this module → function of `dead_letters`."""


def __getattr__(name: str) -> Any:
    if name not in RENAMED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from turbopump.pipelines.transforms import dead_letters

    new = RENAMED[name]
    warnings.warn(
        f"turbopump.pipelines.transforms.letters.{name} is deprecated: "
        f"use turbopump.pipelines.transforms.dead_letters.{new}",
        DeprecationWarning,
        stacklevel=2,
    )
    return getattr(dead_letters, new)
