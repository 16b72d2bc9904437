"""What a client needs of the world: time, network, the bounds of connections, and chance. Real ones unless a
test gives others, and how long pulls wait.
"""

from dataclasses import dataclass, field

from turbopump.remoting.limits import Limits
from turbopump.runtime.chance import Chance
from turbopump.runtime.clock import Clock, SystemClock
from turbopump.runtime.network import Network, SystemNetwork

HOLD_S = 15.0


@dataclass(frozen=True, slots=True)
class World:
    network: Network = field(default_factory=SystemNetwork)
    clock: Clock = field(default_factory=SystemClock)
    chance: Chance = field(default_factory=Chance)
    limits: Limits = field(default_factory=Limits)
    hold_s: float = HOLD_S
    """How long the pull of a push consumer waits at a broker that has nothing for it, as with Apache's."""
