import asyncio
import contextlib
import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from turbopump.cli.exits import exit_status, is_stdout_closed, on_closed_stdout
from turbopump.cli.failures import CommandFailure


@contextlib.contextmanager
def unread() -> Iterator[None]:
    """Makes stdout a pipe whose reader has closed it."""
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as pipe, contextlib.redirect_stdout(pipe):
        yield


def raising(error: BaseException) -> Callable[[], int]:
    def run() -> int:
        raise error

    return run


def printing(status: int, is_at_once: bool) -> Callable[[], int]:
    def run() -> int:
        print("x", flush=is_at_once)
        return status

    return run


def test_output_that_nobody_reads_is_no_failure_and_no_word(capfd: pytest.CaptureFixture[str]) -> None:
    with unread():
        assert exit_status(printing(0, is_at_once=True), "turbopump") == 0
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("status", [0, 1])
def test_a_command_that_was_done_by_then_keeps_its_status(status: int) -> None:
    with unread():
        assert exit_status(printing(status, is_at_once=False), "turbopump") == status


def test_a_pipe_without_a_reader_is_noticed() -> None:
    with unread():
        assert is_stdout_closed()


def test_another_broken_pipe_is_a_failure(capfd: pytest.CaptureFixture[str]) -> None:
    assert exit_status(raising(BrokenPipeError(errno.EPIPE, "Broken pipe")), "turbopump") == 1
    assert capfd.readouterr().err == "turbopump: Broken pipe\n"


def test_ctrl_c_is_130_without_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status(raising(KeyboardInterrupt()), "turbopump") == 130
    assert capsys.readouterr().err == ""


def test_a_failure_is_one_line_whatever_its_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status(raising(CommandFailure("a\nb", 2)), "mqbroker") == 2
    assert capsys.readouterr().err == "mqbroker: a b\n"


def test_a_fault_of_ours_keeps_its_traceback() -> None:
    with pytest.raises(KeyError):
        exit_status(raising(KeyError("x")), "turbopump")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="only Linux has it")
def test_output_that_finds_no_room_is_a_failure_that_names_it(capfd: pytest.CaptureFixture[str]) -> None:
    with open("/dev/full", "w") as full, contextlib.redirect_stdout(full):
        assert exit_status(printing(0, is_at_once=False), "turbopump") == 1
    assert capfd.readouterr().err == "turbopump: stdout: No space left on device\n"


def printing_help() -> int:
    print("help")
    raise SystemExit(0)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="only Linux has it")
def test_so_it_is_of_what_argparse_prints(capfd: pytest.CaptureFixture[str]) -> None:
    with open("/dev/full", "w") as full, contextlib.redirect_stdout(full):
        assert exit_status(printing_help, "turbopump") == 1
    assert capfd.readouterr().err == "turbopump: stdout: No space left on device\n"


def test_argparse_leaves_as_it_does_when_nobody_reads_it(capfd: pytest.CaptureFixture[str]) -> None:
    with unread(), pytest.raises(SystemExit) as caught:
        exit_status(printing_help, "turbopump")
    assert (caught.value.code, capfd.readouterr().err) == (0, "")


def test_a_failure_without_a_stderr_is_not_told_on_stdout(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    assert exit_status(raising(CommandFailure("no", 2)), "turbopump") == 2
    assert capsys.readouterr().out == ""


def is_ended() -> bool:
    """Tells whether a closed stdout is noticed while something else runs."""

    async def run() -> bool:
        gone = asyncio.Event()
        on_closed_stdout(gone.set)
        await asyncio.sleep(0.05)
        return gone.is_set()

    return asyncio.run(run())


def test_a_reader_who_goes_away_is_noticed_before_anything_is_written() -> None:
    with unread():
        assert is_ended()


def test_our_own_line_in_a_fifo_that_is_open_for_both_is_no_reader_who_goes_away(tmp_path: Path) -> None:
    os.mkfifo(path := tmp_path / "fifo")
    with open(os.open(path, os.O_RDWR), "w") as fifo, contextlib.redirect_stdout(fifo):
        print("x", flush=True)
        assert not is_ended()


def test_a_process_with_pyarrow_ends_at_once_with_its_status_and_its_output() -> None:
    """The end of the interpreter itself could abort it, see `end_where_arrow_is_loaded`."""
    script = (
        "import atexit, sys, types\n"
        "from turbopump.cli.exits import end_where_arrow_is_loaded\n"
        "end_where_arrow_is_loaded(7)\n"
        "sys.modules['pyarrow'] = types.ModuleType('pyarrow')\n"
        "atexit.register(print, 'at exit')\n"
        "print('done')\n"
        "end_where_arrow_is_loaded(3)\n"
        "print('not reached')\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, "done\nat exit\n", "")
