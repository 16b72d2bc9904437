"""Writes the diagrams of the documentation to docs/pictures: a cluster, the path of a message and others.

Run `python scripts/diagrams.py` after a change here. A unit test fails when a committed picture is not what
this script draws.
"""

from drawing import Drawing, write


def cluster() -> Drawing:
    drawing = Drawing(
        760,
        430,
        "A cluster: brokers register at name servers; clients, Spark and tools find brokers there",
    )
    drawing.box(250, 16, 260, 62, title="Name servers", lines=("which broker has which topic",), style="ours")
    for x, name in ((250, "broker-a"), (390, "broker-b")):
        drawing.box(x, 168, 120, 70, title=name, lines=("topics, groups,", "queues"), style="ours")
        drawing.box(x, 282, 120, 54, title="Store", lines=("commit log",))
        drawing.arrow((x + 60, 238), (x + 60, 282))
    drawing.arrow((310, 168), (310, 78), style="dashed")
    drawing.arrow((450, 168), (450, 78), style="dashed")
    drawing.text(380, 118, "register", "label")
    drawing.text(380, 133, "every 30 s", "label")

    drawing.box(16, 162, 142, 82, title="Producers", lines=("Python, Java, Go,", "any 4.x or 5.x client"))
    drawing.arrow((158, 203), (250, 203), style="strong", label="send", at=(202, 195))
    drawing.box(602, 162, 142, 82, title="Consumers", lines=("groups share", "the queues"))
    drawing.arrow((510, 203), (602, 203), style="strong", label="pull", at=(556, 195))
    drawing.arrow((87, 162), (87, 47), (250, 47), style="dashed", label="ask for routes", at=(166, 39))
    drawing.arrow((673, 162), (673, 47), (510, 47), style="dashed", label="ask for routes", at=(594, 39))

    drawing.box(16, 354, 142, 62, title="Tools", lines=("mqadmin, Dashboard",))
    drawing.arrow(
        (87, 354), (87, 262), (280, 262), (280, 238), label="administer", at=(94, 310), anchor="start"
    )
    drawing.box(602, 344, 142, 76, title="Spark", lines=("tables and streams,", "exactly once"), style="ours")
    drawing.arrow((673, 344), (673, 262), (480, 262), (480, 238), style="strong")
    drawing.text(666, 300, "read and write", "label", "end")
    drawing.text(666, 315, "topics", "label", "end")
    drawing.arrow((602, 396), (450, 396), (450, 336), label="read the files, without a broker", at=(500, 412))
    return drawing


def message_path() -> Drawing:
    drawing = Drawing(
        820,
        318,
        "The path of a message: socket, router, produce, commit log, dispatch, parked pull, pull, socket",
    )
    top, bottom, width, height = 16, 216, 136, 86
    columns = [8 + 166 * number for number in range(5)]
    sends = (
        ("Producer", ("sends a command",), "box", "client/produce"),
        ("Connection", ("cuts frames,", "decodes commands"), "ours", "remoting"),
        ("Router", ("code → handler;", "errors → responses"), "ours", "remoting"),
        ("Produce", ("validates, chooses", "the queue"), "ours", "broker/produce"),
        ("Commit log", ("appends the record,", "makes it durable"), "ours", "store"),
    )
    pulls = (
        ("Consumer", ("calls the handler",), "box", "client/push"),
        ("Connection", ("writes all responses", "at once"), "ours", "remoting"),
        ("Pull", ("filters, returns the", "stored bytes"), "ours", "broker/consume"),
        ("Parked pulls", ("those that can be", "answered now"), "ours", "broker/consume"),
        ("Dispatch", ("derives consume", "queues and index"), "ours", "store"),
    )
    for y, row in ((top, sends), (bottom, pulls)):
        for x, (title, lines, style, code) in zip(columns, row, strict=True):
            drawing.box(x, y, width, height, title=title, lines=lines, style=style, code=code)
    for x in columns[:-1]:
        drawing.arrow((x + width, top + 43), (x + 166, top + 43), style="strong")
        drawing.arrow((x + 166, bottom + 43), (x + width, bottom + 43), style="strong")
    last = columns[-1]
    drawing.arrow((last + 90, top + height), (last + 90, bottom), style="strong")
    drawing.arrow((last + 40, top + height), (last + 40, 150), (columns[0] + 68, 150), (columns[0] + 68, 102))
    drawing.text(
        412, 142, "answered when the acknowledgement is reached: in memory, or on disk (SYNC_FLUSH)", "label"
    )
    drawing.text(last + 82, 190, "queue Q reaches offset N", "label", "end")
    return drawing


def exactly_once() -> Drawing:
    drawing = Drawing(
        820,
        462,
        "Exactly once with the ledger: open a run, send half messages, decide with one write, settle",
    )
    lives = (
        (90, "Spark driver", ("commits a batch",), "box"),
        (290, "Spark tasks", ("write rows",), "box"),
        (500, "Home broker", ("keeps the ledger",), "ours"),
        (710, "Every broker", ("stores messages",), "ours"),
    )
    for x, title, lines, style in lives:
        drawing.line(x, 66, x, 374, "group")
        drawing.box(x - 80, 12, 160, 54, title=title, lines=lines, style=style)
    driver, tasks, home, brokers = (x for x, *_ in lives)
    left, middle, right = (driver + tasks) / 2, (tasks + home) / 2, (home + brokers) / 2
    steps = (
        (108, tasks, home, middle, "1  open the run", "fences off earlier runs", "arrow"),
        (168, tasks, brokers, middle, "2  half messages with a token", "no consumer sees them", "arrow"),
        (228, tasks, driver, left, "3  return the token", "one for each attempt", "arrow"),
        (288, driver, home, middle, "4  decide: winning tokens", "one synced write, first counts", "strong"),
        (348, home, brokers, right, "5  settle", "a broker may also ask", "strong"),
    )  # fmt: skip
    for y, start, end, label_x, label, below, style in steps:
        drawing.arrow((start, y), (end - 1 if end > start else end + 1, y), style=style)
        drawing.text(label_x, y - 8, label, "label")
        drawing.text(label_x, y + 16, below, "small")
    drawing.box(
        brokers - 100, 374, 200, 76, title="6  each broker by itself",
        lines=("commits messages of winners,", "rolls back all others"), style="ours",
    )  # fmt: skip
    drawing.text(
        8, 400, "A crash before step 4: the batch is written again; its old half messages", "small", "start"
    )
    drawing.text(
        8, 416, "are rolled back. A crash after it: the decision stands, brokers carry it", "small", "start"
    )
    drawing.text(8, 432, "out, and the batch is skipped when Spark repeats it.", "small", "start")
    return drawing


def replication() -> Drawing:
    drawing = Drawing(
        760,
        372,
        "Replication: a slave compares its log with its master's, copies log and tables, and reports",
    )
    drawing.box(300, 12, 160, 54, title="Name servers", lines=("who is whose master",), style="ours")
    drawing.box(170, 120, 150, 76, title="Master", lines=("broker-a, id 0", "stores messages"), style="ours")
    drawing.box(560, 120, 150, 76, title="Slave", lines=("broker-a, id 1", "copies its master"), style="ours")
    for x, lines in ((170, ("commit log", "tables")), (560, ("the same bytes", "the same tables"))):
        drawing.box(x, 282, 150, 70, title="Store", lines=lines)
    drawing.arrow((245, 196), (245, 282))
    drawing.arrow((635, 196), (635, 282))
    drawing.arrow((245, 120), (245, 39), (300, 39), style="dashed")
    drawing.arrow((635, 120), (635, 39), (460, 39), style="dashed")
    drawing.text(238, 84, "register", "label", "end")
    drawing.text(628, 84, "register, ask for the master", "label", "end")
    drawing.box(12, 122, 104, 72, title="Producers", lines=("send to the", "master"))
    drawing.arrow((116, 158), (170, 158), style="strong")
    steps = (
        (134, 560, 320, "1  compare: checksum of the last MiB", "arrow"),
        (160, 320, 560, "2  parts of the log, then tables", "strong"),
        (186, 560, 320, "3  reports: received, on disk", "arrow"),
    )
    for y, start, end, label, style in steps:
        drawing.arrow((start, y), (end - 1 if end > start else end + 1, y), style=style)
        drawing.text(440, y - 5, label, "label")
    drawing.text(440, 226, "A SYNC_MASTER answers a send", "small")
    drawing.text(440, 242, "when a report covers it.", "small")
    drawing.text(440, 290, "A log that is not a copy stays", "small")
    drawing.text(440, 306, "as it is: nothing is copied", "small")
    drawing.text(440, 322, "and nothing acknowledged.", "small")
    return drawing


def two_phase_commit() -> Drawing:
    drawing = Drawing(
        820,
        446,
        "Two-phase commit: CanCommit to all, one decision at the broker, DoCommit to all, HaveCommitted",
    )
    lives = (
        (100, "TM", ("your program",), "ours"),
        (310, "TC", ("a broker: the book",), "ours"),
        (520, "RM icbc", ("PostgreSQL",), "box"),
        (730, "RM ccb", ("MariaDB",), "box"),
    )
    for x, title, lines, style in lives:
        drawing.line(x, 66, x, 390, "group")
        drawing.box(x - 82, 12, 164, 54, title=title, lines=lines, style=style)
    tm, tc, icbc, ccb = (x for x, *_ in lives)
    prepare, commit = "PREPARE TRANSACTION, XA PREPARE", "COMMIT PREPARED, XA COMMIT"
    steps = (
        (100, tm, ccb, "1  begin a branch in each, work: SQL", "a branch is registered by its name", "arrow"),
        (156, tm, ccb, f"2  CanCommit: {prepare}", "prepared is on disk, rows stay locked", "arrow"),
        (212, ccb, tm, "3  Yes, from each", "a No, a fault or the deadline: abort", "dashed"),
        (268, tm, tc, "4  decide: commit", "one synced write, first counts", "strong"),
        (324, tm, ccb, f"5  DoCommit: {commit}", "repeated until it is done, by any process", "strong"),
        (380, ccb, tm, "6  HaveCommitted, from each", "", "dashed"),
    )  # fmt: skip
    for y, start, end, label, below, style in steps:
        middle = (tm + tc) / 2 if tc in (start, end) else (tc + icbc) / 2
        drawing.arrow((start, y), (end - 1 if end > start else end + 1, y), style=style)
        drawing.text(middle, y - 8, label, "label")
        drawing.text(middle, y + 16, below, "small")
    notes = (
        "Between 3 and 5 a database is in doubt: it may neither commit nor roll back by itself.",
        "Whoever finds a prepared branch asks the TC, which then writes an abort, or answers commit.",
    )
    for y, words in zip((418, 434), notes, strict=True):
        drawing.text(8, y, words, "small", "start")
    return drawing


DRAWINGS = {
    "cluster": cluster,
    "message-path": message_path,
    "exactly-once": exactly_once,
    "replication": replication,
    "two-phase-commit": two_phase_commit,
}


def drawings() -> dict[str, Drawing]:
    return {name: draw() for name, draw in DRAWINGS.items()}


if __name__ == "__main__":
    write(drawings())
