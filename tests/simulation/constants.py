"""Constants of modules that a world changes for its time: a later world in the process must not get them."""

import contextlib
from collections.abc import Iterator
from types import ModuleType


@contextlib.contextmanager
def restored(*modules: ModuleType) -> Iterator[None]:
    """Sets the constants of these modules to what they were before, when the block ends."""
    before = [
        (module, name, value) for module in modules for name, value in vars(module).items() if name.isupper()
    ]
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)
