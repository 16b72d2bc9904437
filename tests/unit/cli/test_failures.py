import errno

from turbopump.cli.failures import Failure, explain
from turbopump.protocol.errors import TopicNotFound
from turbopump.runtime.disk import AlreadyLocked
from turbopump.store.errors import UnusableStore


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


def test_a_full_disk_is_one_line() -> None:
    assert str(explain(OSError(errno.ENOSPC, "No space left on device"))) == "No space left on device"


def test_a_store_that_is_not_understood_says_why() -> None:
    assert str(explain(UnusableStore("a file of another size"))) == "a file of another size"


def test_of_failures_side_by_side_the_first_is_told() -> None:
    group = ExceptionGroup("tasks", [TopicNotFound("no topic t\nSee the FAQ"), KeyError("x")])
    assert str(explain(group)) == "refused: TOPIC_NOT_EXIST (17): no topic t"


def test_a_fault_of_ours_is_not_dressed_up() -> None:
    assert explain(KeyError("x")) is None
