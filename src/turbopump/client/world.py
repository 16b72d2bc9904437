"""What a client needs of its environment: clock, network, chance and limits; tests give simulated ones."""

from dataclasses import dataclass, field

from turbopump.remoting.limits import Limits
from turbopump.runtime.chance import Chance
from turbopump.runtime.clock import Clock, SystemClock
from turbopump.runtime.network import Network, SystemNetwork

HOLD_S = 15.0


@dataclass(frozen=True, slots=True)
class World:
    """Network, clock, chance and limits of a client: the real ones unless a test gives others."""

    network: Network = field(default_factory=SystemNetwork)
    clock: Clock = field(default_factory=SystemClock)
    chance: Chance = field(default_factory=Chance)
    limits: Limits = field(default_factory=Limits)
    hold_s: float = HOLD_S
    """How long a broker holds the pull of a push consumer that finds no message; Apache's default."""
