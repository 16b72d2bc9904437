"""Ports of this machine, reserved before a server listens on them."""

import contextlib
import errno
import socket
import sys
from collections.abc import Iterator

TRIES = 100
LISTENS_ON_RESERVED = sys.platform == "linux"
"""Whether a server may listen on a port to which another socket is bound that does not listen."""


@contextlib.contextmanager
def reserved_port(host: str, steps: tuple[int, ...] = ()) -> Iterator[int]:
    """Yields a free port whose neighbours, `steps` away, are free too; they stay reserved in the block.

    A server with SO_REUSEADDR can listen on them, and again after a restart. Where the operating system does
    not allow that, the ports are only free at the beginning. Raises OSError when none is found.
    """
    with contextlib.ExitStack() as stack:
        port = _reserve(host, steps, stack)
        if not LISTENS_ON_RESERVED:
            stack.close()
        yield port


def _reserve(host: str, steps: tuple[int, ...], stack: contextlib.ExitStack) -> int:
    for _ in range(TRIES):
        with contextlib.ExitStack() as tried:
            try:
                port = _bound(host, 0, tried)
                for step in steps:
                    _bound(host, port + step, tried)
            except OverflowError:  # a neighbour is no port
                continue
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                continue
            stack.push(tried.pop_all())
            return port
    raise OSError(
        errno.EADDRINUSE, f"no port of {host} was free together with its neighbours in {TRIES} tries"
    )


def _bound(host: str, port: int, stack: contextlib.ExitStack) -> int:
    """Binds a socket until the stack is closed. Returns its port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    one = stack.enter_context(socket.socket(family))
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    one.bind((host, port))
    bound: int = one.getsockname()[1]
    return bound
