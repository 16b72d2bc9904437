"""The recipes of docs/recipes.md for global transactions, each against a broker."""

import contextlib
import os
import re
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from turbopump.testing import Cluster

HERE = Path(__file__).parent
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


def accounts(path: Path, **cents: int) -> Path:
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        columns = "id TEXT, cents INTEGER, frozen INTEGER DEFAULT 0, expected INTEGER DEFAULT 0"
        connection.execute(f"CREATE TABLE accounts ({columns})")
        connection.executemany("INSERT INTO accounts (id, cents) VALUES (?, ?)", list(cents.items()))
    return path


def rows(path: Path) -> list[tuple[object, ...]]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT id, cents, frozen, expected FROM accounts").fetchall()


def test_fastapi_runs_sagas(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = accounts(tmp_path / "bank.db", A=100, B=0)
    monkeypatch.setenv("NAMESRV_ADDR", cluster.name_servers)
    monkeypatch.setenv("BANK_DB", str(path))
    from tests.recipes.fastapi_bank import app

    with TestClient(app) as client:
        for _ in range(2):  # the same order twice is one transfer
            answer = client.post("/transfers", json={"id": "1", "cents": 10})
            assert (answer.status_code, answer.json()) == (200, {"gid": "order-1"})
        answer = client.post("/transfers", json={"id": "2", "cents": 1000})
        assert answer.status_code == 409
        assert "account A cannot take part" in answer.json()["detail"]
    assert rows(path) == [("A", 90, 0, 0), ("B", 10, 0, 0)]


def test_a_django_view_runs_sagas_in_djangos_database(cluster: Cluster, tmp_path: Path) -> None:
    path = accounts(tmp_path / "bank.db", A=100, B=0)
    view = """
import django, json
django.setup()
from django.test import Client
for order in ({"id": "1", "cents": 10}, {"id": "2", "cents": 1000}):
    answer = Client().post("/transfers", json.dumps(order), content_type="application/json")
    print(answer.status_code, json.dumps(answer.json()))
"""
    done = subprocess.run(
        [sys.executable, "-c", view],
        env={
            **os.environ,
            "NAMESRV_ADDR": cluster.name_servers,
            "BANK_DB": str(path),
            "DJANGO_SETTINGS_MODULE": "settings",
            "PYTHONPATH": str(HERE / "django_bank"),
        },
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first == '200 {"gid": "django-order-1"}', done.stderr
    assert re.fullmatch(r'409 \{"reason": ".*account A cannot take part"\}', second)
    assert rows(path) == [("A", 90, 0, 0), ("B", 10, 0, 0)]


def test_a_script_takes_here_and_gives_by_http(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    debit, credit = accounts(tmp_path / "debit.db", A=100), accounts(tmp_path / "credit.db", B=0)
    monkeypatch.setenv("CREDIT_DB", str(credit))
    from tests.recipes.credit_service import app

    with served(app) as address:
        for order, cents, told in (
            ("1", 10, "1: committed\n"),
            ("2", 1000, "2: too little money\n"),
        ):
            done = subprocess.run(
                [sys.executable, "transfer.py", order, str(cents)],
                env={
                    **os.environ,
                    "NAMESRV_ADDR": cluster.name_servers,
                    "DEBIT_DB": str(debit),
                    "CREDIT_URL": f"http://{address}/credit",
                },
                cwd=HERE,
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
            )
            assert done.stdout == told, done.stderr
    assert rows(debit) == [("A", 90, 0, 0)]
    assert rows(credit) == [("B", 10, 0, 0)]


def test_the_service_answers_a_no_for_a_try_after_its_cancel(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    credit = accounts(tmp_path / "credit.db", B=0)
    monkeypatch.setenv("CREDIT_DB", str(credit))
    from tests.recipes.credit_service import app

    with TestClient(app) as client:
        codes = [
            client.post(
                "/credit",
                json={"id": "1", "cents": 10},
                headers={"gid": "g", "branch": "credit", "phase": phase},
            ).status_code
            for phase in ("cancel", "try", "cancel")
        ]
    assert codes == [200, 409, 200]
    assert rows(credit) == [("B", 0, 0, 0)]


@contextlib.contextmanager
def served(app: FastAPI) -> Iterator[str]:
    """Serves an application on a free port, in a thread."""

    class Forward(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            answer = client.post(self.path, content=body, headers=dict(self.headers))
            self.send_response(answer.status_code)
            self.send_header("content-length", str(len(answer.content)))
            self.end_headers()
            self.wfile.write(answer.content)

        def log_message(self, format: str, *args: object) -> None:
            """Writes nothing."""

    with TestClient(app) as client, ThreadingHTTPServer(("127.0.0.1", 0), Forward) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield "{}:{}".format(*server.server_address)
        finally:
            server.shutdown()
            thread.join()
