"""What a client needs of the world: time, network and chance. Real ones unless a test gives others."""

from dataclasses import dataclass, field

from turbopump.runtime.chance import Chance
from turbopump.runtime.clock import Clock, SystemClock
from turbopump.runtime.network import Network, SystemNetwork


@dataclass(frozen=True, slots=True)
class World:
    network: Network = field(default_factory=SystemNetwork)
    clock: Clock = field(default_factory=SystemClock)
    chance: Chance = field(default_factory=Chance)
