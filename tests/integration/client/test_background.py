"""The loop behind the blocking clients in processes of its own: forked, interrupted, ended."""

import subprocess
import sys
import textwrap
import time


def test_before_the_start_plain_calls_need_no_loop() -> None:
    done = script("""
        client = Client()
        client._call(lambda core: core.on("a"))
        assert client._core.handlers == ["a"] and threading.active_count() == 1
    """)
    assert done.returncode == 0, done.stderr


def test_without_uvloop_the_loop_is_asyncios_own() -> None:
    done = script("""
        sys.modules["uvloop"] = None
        async def where():
            return type(asyncio.get_running_loop()).__module__
        assert background.run(where()).startswith("asyncio."), background.run(where())
    """)
    assert done.returncode == 0, done.stderr


PREAMBLE = """
import asyncio, atexit, os, signal, sys, threading, time
from tests.unit.client.background_kit import Client, Core, answer
from turbopump.client import background
def wait(child):
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def script(text: str, timeout: float = 20) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PREAMBLE + textwrap.dedent(text)],
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def test_a_child_begins_a_loop_of_its_own() -> None:
    done = script("""
        assert background.run(answer()) == 42
        child = os.fork()
        if child == 0:
            os._exit(0 if background.run(answer(), 5) == 42 else 1)
        wait(child)
    """)
    assert done.returncode == 0, done.stderr


def test_a_client_started_before_the_fork_works_in_child_and_parent() -> None:
    done = script("""
        client = Client().__enter__()
        before = client._core
        child = os.fork()
        if child == 0:
            ok = client.twice(2) == 4 and client._core is not before and not before is None
            os._exit(0 if ok else 1)
        assert client.twice(3) == 6 and client._core is before
        wait(child)
    """)
    assert done.returncode == 0, done.stderr


def test_a_fork_past_python_is_seen_too() -> None:
    """As by uWSGI: no hook of Python runs in the child."""
    done = script("""
        import ctypes
        client = Client().__enter__()
        before = client._core
        child = ctypes.PyDLL(None).fork()
        if child == 0:
            os._exit(0 if client.twice(2) == 4 and client._core is not before else 1)
        wait(child)
    """)
    assert done.returncode == 0, done.stderr


def test_many_threads_of_a_child_start_it_once() -> None:
    done = script("""
        starts = []
        class Counting(Core):
            async def __aenter__(self):
                starts.append(os.getpid())
                await asyncio.sleep(0.05)
                return await super().__aenter__()
        client = Client.__new__(Client)
        super(Client, client).__init__(Counting)
        client.__enter__()
        child = os.fork()
        if child == 0:
            got = []
            threads = [threading.Thread(target=lambda: got.append(client.twice(1))) for _ in range(8)]
            [thread.start() for thread in threads]
            [thread.join() for thread in threads]
            os._exit(0 if got == [2] * 8 and starts.count(os.getpid()) == 1 else 1)
        wait(child)
    """)
    assert done.returncode == 0, done.stderr


def test_a_client_that_does_not_go_on_is_not_started_in_a_child_but_keeps_its_handlers() -> None:
    done = script("""
        from turbopump.client.errors import NotRunning
        class Consumer(Client):
            _restarts_after_fork = False
        consumer = Consumer()
        for name in ("old", "orders", "orders"):
            consumer._call(lambda core: core.on(name))
        consumer._note(("on", "orders"), lambda core: core.on("orders"))
        consumer.__enter__()
        child = os.fork()
        if child == 0:
            try:
                consumer.twice(1)
            except NotRunning:
                with consumer:
                    os._exit(0 if consumer.twice(1) == 2 and consumer._core.handlers == ["orders"] else 1)
            os._exit(2)
        wait(child)
    """)
    assert done.returncode == 0, done.stderr


def test_a_child_that_leaves_the_parents_with_block_does_not_close_the_parents_client() -> None:
    done = script("""
        with Client() as client:
            child = os.fork()
            if child == 0:
                client.__exit__(None, None, None)
                os._exit(0)
            os.waitpid(child, 0)
            assert client.twice(1) == 2
    """)
    assert done.returncode == 0, done.stderr


def test_clients_that_are_open_are_closed_when_the_interpreter_ends() -> None:
    done = script("""
        class Slow(Core):
            async def close(self):
                await asyncio.sleep(0.1)
                print("closed", flush=True)
        client = Client.__new__(Client)
        super(Client, client).__init__(Slow)
        client.__enter__()
    """)
    assert (done.returncode, done.stdout) == (0, "closed\n"), done.stderr


def test_listeners_in_threads_can_finish_when_the_interpreter_ends() -> None:
    """They may still need an executor, which takes no more work once the interpreter is half down."""
    done = script("""
        class Draining(Core):
            async def __aenter__(self):
                await asyncio.get_running_loop().run_in_executor(None, int)  # 3.12.1 begins no thread later
            async def close(self):
                await asyncio.get_running_loop().run_in_executor(None, os.write, 1, "finished".encode())
        client = Client.__new__(Client)
        super(Client, client).__init__(Draining)
        client.__enter__()
    """)
    assert (done.returncode, done.stdout) == (0, "finished"), done.stderr


def test_a_thread_that_outlives_the_main_one_can_go_on_with_its_client() -> None:
    done = script("""
        client = Client().__enter__()
        def later():
            time.sleep(0.2)
            print(client.twice(21), flush=True)
        threading.Thread(target=later).start()
    """)
    assert (done.returncode, done.stdout) == (0, "42\n"), done.stderr


def test_a_client_that_does_not_close_holds_the_interpreter_no_longer_than_its_patience() -> None:
    began = time.monotonic()
    done = script("""
        from turbopump.client.blocking import face
        background.SPARE_S = face.CLOSING_S = 0.1
        class Stuck(Core):
            async def close(self):
                await asyncio.sleep(3600)
        client = Client.__new__(Client)
        super(Client, client).__init__(Stuck)
        client.__enter__()
    """)
    assert done.returncode == 0, done.stderr
    assert "did not close within" in done.stderr
    assert time.monotonic() - began < 10


def test_a_process_of_multiprocessing_closes_its_clients_too() -> None:
    done = script("""
        import multiprocessing
        class Telling(Core):
            async def close(self):
                print("closed", flush=True)
        def work():
            client = Client.__new__(Client)
            super(Client, client).__init__(Telling)
            client.__enter__()
        if __name__ == "__main__":
            process = multiprocessing.get_context("fork").Process(target=work)
            process.start()
            process.join()
            sys.exit(process.exitcode)
    """)
    assert (done.returncode, done.stdout) == (0, "closed\n"), done.stderr


def test_ctrl_c_ends_the_wait_and_cancels_the_call() -> None:
    done = script("""
        cancelled = threading.Event()
        async def endless():
            try:
                os.kill(os.getpid(), signal.SIGINT)
                await asyncio.sleep(3600)
            finally:
                cancelled.set()
        try:
            background.run(endless())
        except KeyboardInterrupt:
            sys.exit(0 if cancelled.wait(5) else 1)
        sys.exit(2)
    """)
    assert done.returncode == 0, done.stderr


def test_a_call_after_the_end_says_so() -> None:
    done = script("""
        from turbopump.client.errors import NotRunning
        def last():
            try:
                background.run(answer())
            except NotRunning as error:
                print(error)
        atexit.register(last)
        background.run(answer())
        atexit.unregister(last)
        atexit._run_exitfuncs()
        last()
    """)
    assert "the interpreter is ending" in done.stdout, done.stderr


def test_importing_starts_no_thread() -> None:
    done = script("assert threading.active_count() == 1, threading.enumerate()")
    assert done.returncode == 0, done.stderr
