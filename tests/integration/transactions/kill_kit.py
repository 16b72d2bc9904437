"""The steps of a shop program that is killed, and what is counted afterwards."""

import signal
import subprocess
import sys
from pathlib import Path

from tests.integration.transactions import shop
from tests.integration.transactions.dying import Points, end_leases

from turbopump.testing import Cluster

ROOT = Path(__file__).parents[3]
STEPS = {
    "before INSERT orders",
    "after INSERT turbopump_outbox",
    "before commit",
    "after commit",
    "after UPDATE turbopump_outbox",
    "before send",
    "after send",
    "before DELETE turbopump_outbox",
    "after INSERT turbopump_processed",
    "before INSERT bills",
    "after INSERT bills",
    "after SELECT turbopump_processed",
    "before acknowledge",
    "after acknowledge",
}
"""Some that must be among those at which the shop died."""
DEATHS = (1, 9, 23, 41, 58, 77, 95)
"""Steps at which the shop dies, one run after the other; a run has about 150."""


def check_real_clients(database_text: str, place: Path) -> None:
    """The same database and broker through all runs; the last one nobody kills."""
    database = shop.database_of(database_text, Points(place / "unused"))
    database.run("CREATE TABLE orders (what TEXT)")
    database.run("CREATE TABLE bills (what TEXT)")
    deaths = 0
    with Cluster() as cluster:
        cluster.create_topic(shop.TOPIC)
        for number, die_at in enumerate((*DEATHS, 0)):
            words = (database_text, cluster.name_servers, str(number), str(place / "steps"), str(die_at))
            done = subprocess.run([sys.executable, "-m", shop.__name__, *words], cwd=ROOT, timeout=100)
            assert done.returncode in ((-signal.SIGKILL, 0) if die_at else (0,))
            deaths += done.returncode != 0  # one that takes many orders at once may be through before
            end_leases(database)
        assert deaths > len(DEATHS) // 2
        sent = [message.text for message in cluster.messages(shop.TOPIC)]
    orders = sorted(row[0] for row in database.run("SELECT what FROM orders"))
    assert len(orders) >= shop.ORDERS
    assert sorted(row[0] for row in database.run("SELECT what FROM bills")) == orders
    assert sorted(set(sent)) == orders
    assert database.count("turbopump_outbox") == 0
