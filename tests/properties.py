"""How many examples a property test runs, by the profile of the run.

`HYPOTHESIS_PROFILE` names it, or pytest's `--hypothesis-profile`: `quick` for `make quick`, `ci` (the
default) for `make check` and `.ci/run`, `long` for `make test-long`, which alone runs every example.
A test that wants another number than Hypothesis' own 100 states that of the long profile with `examples`.
"""

from __future__ import annotations

import os
from typing import Any

from hypothesis import HealthCheck, settings

LONG = 100  # Hypothesis' own number
MAX_EXAMPLES = {"quick": 10, "ci": 25, "long": LONG}
MIN_EXAMPLES = 5
DEFAULT = "ci"


def load_profile() -> None:
    """Registers the profiles, and loads the one that the environment names.

    No profile has a deadline: a property is about values, not about how busy the machine is.
    """
    for name, count in MAX_EXAMPLES.items():
        settings.register_profile(
            name,
            max_examples=count,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
            derandomize=False,
        )
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", DEFAULT))


def examples(count: int, **more: Any) -> settings:
    """Settings of a test with `count` examples in the long profile, and a share of them in others."""
    return settings(max_examples=scaled(count, settings().max_examples), **more)


def scaled(count: int, profile_count: int) -> int:
    """Number of examples of a test of `count`, where the profile allows `profile_count` instead of 100."""
    return max(min(count, MIN_EXAMPLES), count * profile_count // LONG)
