"""Chance: a seeded `random.Random`, so that a simulated run replays from its seed."""

import random

Chance = random.Random
