"""The recipes of docs/recipes.md, each against a broker."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from turbopump.runtime.ports import reserved_port
from turbopump.testing import Cluster

HERE = Path(__file__).parent
PATIENCE_S = 30.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


def test_fastapi_sends_and_consumes_for_as_long_as_the_application_lives(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", cluster.name_servers)
    from tests.recipes.fastapi_app import app, billed

    cluster.create_topic("FastapiOrders")
    with TestClient(app) as client:
        answer = client.post("/orders", json={"id": "A-1", "cents": 1250})
        assert answer.status_code == 202
        assert len(answer.json()["message"]) == 32
        cluster.wait_until(lambda: "A-1" in billed, PATIENCE_S)
        assert client.get("/orders/A-1").json() == {"cents": 1250}
    cluster.wait_until_consumed("shop-billing", "FastapiOrders")


def test_a_django_view_sends_and_a_management_command_consumes(cluster: Cluster) -> None:
    environment = _environment(cluster) | {
        "DJANGO_SETTINGS_MODULE": "settings",
        "PYTHONPATH": str(HERE / "django_shop"),
    }
    cluster.create_topic("DjangoOrders")
    view = """
import django, json
django.setup()
from django.test import Client
answer = Client().post("/orders", json.dumps({"id": "A-1", "cents": 1250}), content_type="application/json")
print(answer.status_code, len(answer.json()["message"]))
"""
    done = subprocess.run([sys.executable, "-c", view], env=environment, capture_output=True, text=True)
    assert done.stdout == "202 32\n", done.stderr

    command = [sys.executable, "-m", "django", "bill"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "billed A-1: 1250\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    cluster.wait_until_consumed("django-billing", "DjangoOrders")


def test_a_producer_started_before_gunicorn_forks_works_in_every_worker(cluster: Cluster) -> None:
    answers: list[list[str]] = []
    with _gunicorn(cluster) as address:
        deadline = time.monotonic() + PATIENCE_S
        while len(answers) < 60 or (len({pid for pid, _ in answers}) < 2 and time.monotonic() < deadline):
            answers.append(_get(address).split())  # which worker takes it is up to the operating system
    pids, ids = {pid for pid, _ in answers}, {message for _, message in answers}
    assert len(ids) == len(answers)
    assert len(pids) == 2, "every worker should have had a request"
    stored = [message.text for message in cluster.messages("PreforkTopic")]
    assert sorted(stored) == sorted(pid for pid, _ in answers)


@contextlib.contextmanager
def _gunicorn(cluster: Cluster) -> Iterator[str]:
    command = [sys.executable, "-m", "gunicorn", "--preload", "--workers", "2", "prefork:application"]
    with (
        reserved_port("127.0.0.1") as port,
        subprocess.Popen(
            [*command, "--bind", (address := f"127.0.0.1:{port}")],
            env=_environment(cluster),
            cwd=HERE,
            stderr=subprocess.PIPE,
            text=True,
        ) as master,
    ):
        try:
            _wait_for(address, master)
            yield address
            master.send_signal(signal.SIGTERM)
            assert master.wait(PATIENCE_S) == 0
            told = master.stderr.read() if master.stderr else ""
            assert not re.search("Traceback|Exception", told), told
        finally:
            master.kill()


def _wait_for(address: str, process: "subprocess.Popen[str]") -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(tuple(address.split(":")), 1):  # type: ignore[arg-type]
            return
        time.sleep(0.05)
    raise AssertionError(f"gunicorn did not start: {process.stderr and process.stderr.read()}")


def _get(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/", timeout=PATIENCE_S) as answer:
        return str(answer.read().decode())


def _environment(cluster: Cluster) -> dict[str, str]:
    return {**os.environ, "NAMESRV_ADDR": cluster.name_servers}
