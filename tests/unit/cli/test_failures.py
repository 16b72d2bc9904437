import errno

from turbopump.cli.failures import Failure, explain
from turbopump.runtime.disk import AlreadyLocked


def test_a_port_in_use_is_named() -> None:
    error = OSError(errno.EADDRINUSE, "error while attempting to bind on address ('127.0.0.1', 9876): in use")
    failure = explain(error)
    assert failure is not None
    assert "127.0.0.1:9876" in str(failure)
    assert "in use" in str(failure)
    assert failure.status == 1


def test_a_directory_that_cannot_be_written_is_named() -> None:
    failure = explain(PermissionError(errno.EACCES, "Permission denied", "/var/store"))
    assert str(failure) == "/var/store: Permission denied"


def test_a_locked_store_says_who_holds_it() -> None:
    failure = explain(AlreadyLocked(errno.EAGAIN, "another process uses it: /var/store/lock"))
    assert "/var/store/lock" in str(failure)


def test_a_failure_keeps_its_exit_status() -> None:
    failure = explain(Failure("broker.conf line 3: no such key", 2))
    assert failure is not None
    assert failure.status == 2


def test_a_fault_of_ours_is_not_dressed_up() -> None:
    assert explain(KeyError("x")) is None
