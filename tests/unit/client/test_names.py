"""What `import turbopump` offers, and what it costs."""

import inspect
import subprocess
import sys

import pytest

import turbopump
import turbopump.aio
import turbopump.client.errors
import turbopump.errors


@pytest.mark.parametrize("name", turbopump.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(turbopump, name) is not None
    assert name in dir(turbopump)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Produzer'"):
        _ = turbopump.Produzer  # type: ignore[attr-defined]


def test_both_packages_have_the_same_names() -> None:
    assert set(turbopump.__all__) - {"aio", "errors"} == set(turbopump.aio.__all__)


def test_clients_of_the_two_packages_have_the_same_methods() -> None:
    for name in ("Producer", "Consumer", "PullConsumer", "Admin"):
        blocking, awaited = getattr(turbopump, name), getattr(turbopump.aio, name)
        missing = {
            method
            for method, _ in inspect.getmembers(blocking, inspect.isfunction)
            if not method.startswith("_") and not hasattr(awaited, method)
        }
        assert not missing, name


def test_values_are_the_same_classes_in_both_packages() -> None:
    for name in ("Message", "MessageExt", "MessageQueue", "SendResult", "RetryLater", "configure"):
        assert getattr(turbopump, name) is getattr(turbopump.aio, name)


@pytest.mark.parametrize("name", turbopump.errors.__all__)
def test_every_error_is_an_exception(name: str) -> None:
    assert name == "Try" or issubclass(getattr(turbopump.errors, name), Exception)


def test_every_error_of_the_client_is_offered() -> None:
    assert set(turbopump.client.errors.__all__) <= set(turbopump.errors.__all__)


def test_importing_the_package_imports_no_client_and_starts_nothing() -> None:
    code = """
import sys, threading, turbopump
loaded = [name for name in sys.modules if name.startswith("turbopump.")]
assert not loaded, loaded
assert threading.active_count() == 1
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_server_imports_no_client_that_blocks() -> None:
    code = """
import sys, turbopump.broker.server, turbopump.namesrv.server
assert not [name for name in sys.modules if name.startswith("turbopump.client")]
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_blocking_clients_need_nothing_that_only_posix_has() -> None:
    code = """
import sys
from turbopump import *
assert not {"turbopump.runtime.disk", "resource", "uvloop"} & set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
