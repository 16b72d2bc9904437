"""Imports of the extra `security`, which a server needs only when access control is on."""

import importlib
from types import ModuleType

INSTALL = "pip install 'turbopump[security]'"


class ExtraMissing(Exception):
    """Raised at the start of a server whose configuration needs a package that is not installed."""


def extra(module: str, key: str, package: str = "") -> ModuleType:
    """Returns an imported module of the extra. Raises ExtraMissing, which names the key that needs it.

    `package`: its name for who installs it, if the module has another one.
    """
    try:
        return importlib.import_module(module)
    except ImportError:
        raise ExtraMissing(f"{key} needs {package or module.partition('.')[0]}: {INSTALL}") from None
