"""The real databases of the other tests: what is committed or prepared outlives a kill of the server."""

from __future__ import annotations

import socket
import threading

from . import mariadb, postgres


def test_a_killed_postgresql_comes_back_with_what_was_committed_and_prepared(
    postgres_server: postgres.Postgres,
) -> None:
    import psycopg

    database = postgres_server.new_database()
    postgres_server.execute("CREATE TABLE kept (what TEXT)", database)
    where = postgres_server.connection_string(database=database)
    with psycopg.connect(where) as connection:
        connection.execute("INSERT INTO kept VALUES ('prepared')")
        connection.execute("PREPARE TRANSACTION 'one'")
    postgres_server.execute("INSERT INTO kept VALUES ('committed')", database)
    postgres_server.kill()
    postgres_server.start()
    assert postgres_server.execute("SELECT what FROM kept", database) == [("committed",)]
    assert postgres_server.execute("SELECT gid FROM pg_prepared_xacts", database) == [("one",)]
    postgres_server.execute("COMMIT PREPARED 'one'", database)


def test_a_killed_mariadb_comes_back_at_its_port_with_what_was_committed_and_prepared(
    mariadb_server: mariadb.MariaDB,
) -> None:
    import pymysql

    database = mariadb_server.new_database()
    mariadb_server.execute("CREATE TABLE kept (what TEXT)", database)
    connection = pymysql.connect(**mariadb_server.parameters(database))
    cursor = connection.cursor()
    for sql in ("XA START 'one'", "INSERT INTO kept VALUES ('prepared')", "XA END 'one'", "XA PREPARE 'one'"):
        cursor.execute(sql)
    mariadb_server.execute("INSERT INTO kept VALUES ('committed')", database)
    mariadb_server.kill()
    mariadb_server.start()
    assert mariadb_server.execute("SELECT what FROM kept", database) == [("committed",)]
    assert mariadb_server.execute("XA RECOVER") == [(1, 3, 0, b"one")]
    mariadb_server.execute("XA COMMIT 'one'")
    assert mariadb_server.execute("SELECT count(*) FROM kept", database) == [(2,)]


def test_a_paused_server_answers_when_it_is_resumed(mariadb_server: mariadb.MariaDB) -> None:
    mariadb_server.pause()
    answered = threading.Event()
    asking = threading.Thread(target=lambda: (mariadb_server.execute("SELECT 1"), answered.set()))
    asking.start()
    with socket.create_connection(("127.0.0.1", mariadb_server.port)):  # the kernel accepts it
        assert not answered.wait(0.2)
    mariadb_server.resume()
    asking.join(20)
    assert answered.is_set()
