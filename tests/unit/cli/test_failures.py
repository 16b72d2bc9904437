import errno

import pytest

from turbopump.cli.failures import CommandFailure, explain
from turbopump.client.errors import InvalidArgument, SendFailed, TopicUnknown, Try
from turbopump.protocol.errors import NoPermission, TopicNotFound
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
    failure = explain(CommandFailure("broker.conf line 3: no such key", 2))
    assert failure is not None
    assert failure.status == 2


def test_a_full_disk_is_one_line() -> None:
    assert str(explain(OSError(errno.ENOSPC, "No space left on device"))) == "No space left on device"


def test_a_store_that_is_not_understood_says_why() -> None:
    assert str(explain(UnusableStore("a file of another size"))) == "a file of another size"


def test_of_failures_side_by_side_the_first_is_told() -> None:
    group = ExceptionGroup("tasks", [TopicNotFound("no topic t\nSee the FAQ"), KeyError("x")])
    assert str(explain(group)) == "refused: TOPIC_NOT_EXIST (17): no topic t"


def test_a_send_that_brokers_refused_tells_the_refusal_once() -> None:
    tries = [Try("a", 0.1, NoPermission("no sends\nSee the FAQ"))] * 3
    failure = explain(SendFailed("t", tries, 16, "The brokers say why."))
    assert str(failure) == "refused: NO_PERMISSION (16): no sends"


def test_a_topic_that_nobody_takes_says_what_to_do() -> None:
    assert str(explain(TopicUnknown("t"))).startswith("No broker accepts messages for topic t: create it")


def test_a_call_that_cannot_be_right_is_asked_wrongly() -> None:
    failure = explain(InvalidArgument("the body is empty"))
    assert failure is not None
    assert (str(failure), failure.status) == ("the body is empty", 2)


@pytest.mark.parametrize(("encoding", "status"), [("utf-8", 2), ("latin-1", 1)])
def test_what_cannot_be_written_is_shown(encoding: str, status: int) -> None:
    with pytest.raises(UnicodeEncodeError) as caught:
        "a\udcff".encode(encoding)
    failure = explain(caught.value)
    assert failure is not None
    assert failure.status == status
    assert rf"'a\udcff' cannot be written as {encoding}" in str(failure)


def test_an_error_without_words_of_the_system_tells_its_own() -> None:
    assert str(explain(OSError("Multiple exceptions: refused, refused"))).startswith("Multiple exceptions")


def test_a_fault_of_ours_is_not_dressed_up() -> None:
    assert explain(KeyError("x")) is None
