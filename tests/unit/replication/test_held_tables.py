"""Tables of an Apache master wait for the log that they count."""

from turbopump.replication.held_tables import HeldTables


def held() -> tuple[HeldTables, list[tuple[str, bytes, int]]]:
    taken: list[tuple[str, bytes, int]] = []
    return HeldTables(lambda *table: taken.append(table)), taken


def test_a_table_waits_for_the_log_that_it_counts() -> None:
    tables, taken = held()
    tables.put("a", b"one", 100)
    tables.copied(99)
    assert taken == []
    tables.copied(100)
    tables.copied(100)
    assert taken == [("a", b"one", 100)]


def test_only_the_newest_table_that_may_go_is_handed_on() -> None:
    tables, taken = held()
    tables.put("a", b"one", 100)
    tables.put("a", b"two", 200)
    tables.put("a", b"three", 300)
    tables.copied(350)
    assert taken == [("a", b"three", 300)]


def test_newer_tables_do_not_starve_the_first() -> None:
    tables, taken = held()
    for end in range(100, 1000, 100):
        tables.put("a", b"%d" % end, end)
        tables.copied(end - 50)
    assert [end for _, _, end in taken] == [100, 200, 300, 400, 500, 600, 700, 800]


def test_what_waits_is_forgotten_with_the_connection() -> None:
    tables, taken = held()
    tables.put("a", b"one", 100)
    tables.clear()
    tables.copied(500)
    assert taken == []
