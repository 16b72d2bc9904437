"""Test support for programs that use RocketMQ: a cluster in the test's process, in real or virtual time.

    from turbopump.testing import Cluster

    with Cluster() as cluster, cluster.producer() as producer: ...

With pytest installed, the fixtures `cluster`, `producer`, `consumer` and `topic` are available without an
import: see docs/testing-your-code.md. Simulated disks and networks are in separate modules.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from turbopump.testing.blocking import Cluster
    from turbopump.testing.cluster import AsyncCluster, NotConsumed
    from turbopump.testing.loop import run_virtual

__all__ = ["AsyncCluster", "Cluster", "NotConsumed", "run_virtual"]

_WHERE = {
    "AsyncCluster": "turbopump.testing.cluster",
    "Cluster": "turbopump.testing.blocking",
    "NotConsumed": "turbopump.testing.cluster",
    "run_virtual": "turbopump.testing.loop",
}


def __getattr__(name: str) -> Any:
    """Imports a name at its first use: pytest imports this package in every run, also without a cluster."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    from importlib import import_module

    return getattr(import_module(_WHERE[name]), name)
