"""The examples of docs/testing-your-code.md are tests: they are run as a user would run them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/testing-your-code.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def pytest_in(directory: Path, *words: str) -> str:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=300, check=False)
    return done.stdout + done.stderr


def test_every_example_of_the_page_passes(tmp_path: Path) -> None:
    for number, block in enumerate(BLOCKS):
        (tmp_path / f"test_example_{number}.py").write_text(block)
    told = pytest_in(tmp_path, "--strict-markers")
    tests = sum(len(re.findall(r"^def test_", block, re.MULTILINE)) for block in BLOCKS)
    assert re.search(rf"\b{tests} passed", told), told
    assert "warning" not in told


def test_a_run_that_needs_no_cluster_does_not_load_one(tmp_path: Path) -> None:
    (tmp_path / "test_plain.py").write_text(
        "import sys\n"
        "def test_plain() -> None:\n"
        "    ours = sorted(name for name in sys.modules if name.startswith('turbopump'))\n"
        "    assert ours == ['turbopump', 'turbopump.testing', 'turbopump.testing.plugin']\n"
    )
    assert "1 passed" in pytest_in(tmp_path)


ASYNC_TEST = """
import pytest
from turbopump import Message

{mark}
@pytest.mark.turbopump(brokers=2)
async def test_a_paid_order_is_billed(async_cluster, async_producer, async_consumer, async_topic):
    assert async_cluster.brokers == ("broker-a", "broker-b")
    billed = []
    async_consumer.subscribe(async_topic, lambda message: billed.append(message.text))
    await async_consumer.start()
    await async_producer.send(Message(async_topic, b"A-1"))
    await async_cluster.wait_until_consumed(async_consumer.group, async_topic)
    assert billed == ["A-1"]

@pytest.fixture
def anyio_backend():
    return "asyncio"
"""


@pytest.mark.parametrize(
    ("runner", "mark"),
    [("anyio", "@pytest.mark.anyio"), ("pytest_asyncio", "@pytest.mark.asyncio")],
    ids=["anyio", "pytest-asyncio"],
)
def test_async_tests_have_async_fixtures(tmp_path: Path, runner: str, mark: str) -> None:
    pytest.importorskip(runner)
    (tmp_path / "test_async.py").write_text(ASYNC_TEST.format(mark=mark))
    told = pytest_in(tmp_path)
    assert "1 passed" in told, told


@pytest.mark.turbopump(brokers=2, clock="virtual")
def test_the_mark_makes_a_cluster_of_its_own(request: pytest.FixtureRequest) -> None:
    cluster = request.getfixturevalue("cluster")
    assert cluster.brokers == ("broker-a", "broker-b")
    cluster.advance(3600)


def test_own_fixtures_go_before_ours_and_killed_brokers_are_up_for_the_next_test(tmp_path: Path) -> None:
    (tmp_path / "test_own.py").write_text(
        "import pytest\n"
        "from turbopump import Message\n"
        "@pytest.fixture\n"
        "def topic() -> str:\n"
        "    return 'mine'\n"
        "def test_kills(cluster) -> None:\n"
        "    cluster.kill_broker()\n"
        "def test_sends(producer, topic) -> None:\n"
        "    assert producer.send(Message(topic, b'x')).queue.topic == 'mine'\n"
    )
    assert "2 passed" in pytest_in(tmp_path)
