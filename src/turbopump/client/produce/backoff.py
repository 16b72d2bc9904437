"""Computes how long a send waits before it retries a broker that has just failed. Pure: chance is given."""

FIRST_PAUSE_S = 0.05
MAX_PAUSE_S = 0.5
"""A broker that comes back is found within half a second; each send asks it at most a few times a second."""
_MAX_DOUBLINGS = 10


def pause_s(round: int, jitter: float) -> float:
    """Returns the seconds to wait after failed round 0, 1, 2 …: twice as long each time, at most 0.5.

    `jitter` from 0 to 1 takes up to half of it away, so that senders which failed together do not come back
    together.

    >>> [pause_s(round, 0.0) for round in range(5)]
    [0.05, 0.1, 0.2, 0.4, 0.5]
    """
    full_s = min(MAX_PAUSE_S, FIRST_PAUSE_S * (1 << min(round, _MAX_DOUBLINGS)))
    return full_s * (1 - jitter / 2)
