"""Mutates valid input, without a fuzzing library. The same seed gives the same inputs."""

import random
import struct
from collections.abc import Callable, Sequence

MAX_INPUT = 64 * 1024
NUMBERS = (0, 1, -1, 2, 4, 7, 8, 16, 22, 88, 91, 127, 128, 255, 256, 32767, 32768, 65535, 65536,
           0xFFFFFF, 16777212, 16777213, (1 << 31) - 1, -(1 << 31), (1 << 63) - 1, -(1 << 63))  # fmt: skip
FORMATS = ((">B", 0xFF), (">H", 0xFFFF), (">I", 0xFFFFFFFF), (">Q", (1 << 64) - 1))

Mutation = Callable[[bytearray, random.Random, Sequence[bytes], Sequence[bytes]], None]


def mutate(pool: Sequence[bytes], words: Sequence[bytes], chance: random.Random) -> bytes:
    """Returns an input of the pool with one to eight changes."""
    data = bytearray(chance.choice(pool))
    for _ in range(chance.choice((1, 1, 1, 2, 2, 4, 8))):
        chance.choice(MUTATIONS)(data, chance, pool, words)
    return bytes(data[:MAX_INPUT])


def _at(data: bytearray, chance: random.Random) -> int:
    return chance.randrange(len(data) + 1)


def _span(data: bytearray, chance: random.Random) -> slice:
    start = _at(data, chance)
    return slice(start, start + chance.choice((1, 1, 2, 4, 8, 16, 64, len(data))))


def _flip(data: bytearray, chance: random.Random, pool: Sequence[bytes], words: Sequence[bytes]) -> None:
    if data:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def _byte(data: bytearray, chance: random.Random, pool: Sequence[bytes], words: Sequence[bytes]) -> None:
    if data:
        data[chance.randrange(len(data))] = chance.randrange(256)


def _number(data: bytearray, chance: random.Random, pool: Sequence[bytes], words: Sequence[bytes]) -> None:
    """Returns a slightly or very wrong length or count."""
    code, mask = chance.choice(FORMATS)
    at = _at(data, chance)
    value = chance.choice((*NUMBERS, len(data), len(data) - at)) + chance.choice((0, 0, 0, -1, 1))
    packed = struct.pack(code, value & mask)
    data[at : at + len(packed)] = packed


def _count_on(data: bytearray, chance: random.Random, pool: Sequence[bytes], words: Sequence[bytes]) -> None:
    at = _at(data, chance)
    if at + 4 <= len(data):
        (value,) = struct.unpack_from(">I", data, at)
        struct.pack_into(">I", data, at, (value + chance.choice((-4, -1, 1, 4, 256))) & 0xFFFFFFFF)


def _digits(data: bytearray, chance: random.Random, pool: Sequence[bytes], words: Sequence[bytes]) -> None:
    at = _at(data, chance)
    data[at:at] = str(chance.choice(NUMBERS)).encode()


def _drop(data: bytearray, chance: random.Random, pool: Sequence[bytes], words: Sequence[bytes]) -> None:
    del data[_span(data, chance)]


def _repeat(data: bytearray, chance: random.Random, pool: Sequence[bytes], words: Sequence[bytes]) -> None:
    part = data[_span(data, chance)]
    at = _at(data, chance)
    data[at:at] = (part * chance.choice((1, 1, 2, 50)))[:MAX_INPUT]


def _truncate(data: bytearray, chance: random.Random, pool: Sequence[bytes], words: Sequence[bytes]) -> None:
    del data[_at(data, chance) :]


def _splice(data: bytearray, chance: random.Random, pool: Sequence[bytes], words: Sequence[bytes]) -> None:
    other = chance.choice(pool)
    data[_at(data, chance) :] = other[chance.randrange(len(other) + 1) :]


def _word(data: bytearray, chance: random.Random, pool: Sequence[bytes], words: Sequence[bytes]) -> None:
    if words:
        at = _at(data, chance)
        times = chance.choice((1, 1, 1, 1, 3, 3, 40, 3000))
        data[at : at + chance.choice((0, 0, 1, 4))] = chance.choice(words) * times


def _noise(data: bytearray, chance: random.Random, pool: Sequence[bytes], words: Sequence[bytes]) -> None:
    data[_span(data, chance)] = chance.randbytes(chance.randrange(12))


MUTATIONS: tuple[Mutation, ...] = (
    _flip,
    _byte,
    _number,
    _count_on,
    _digits,
    _drop,
    _repeat,
    _truncate,
    _splice,
    _word,
    _noise,
)
