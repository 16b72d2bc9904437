from pathlib import Path
from textwrap import dedent

from scripts.tree.counts import counts


def tree(directory: Path, **modules: str) -> Path:
    """A package with these modules; `__` in a name stands for a slash."""
    for name, text in modules.items():
        path = directory / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))
    return directory


def test_lines_of_the_brokers_start_are_counted(tmp_path: Path) -> None:
    server = """\
        class Broker:
            async def start(self):
                await self._start()

            async def _start(self):
                one()
                two()
        """
    assert counts(tree(tmp_path, broker__server=server))["start_lines"] == 3


def test_a_class_is_wide_from_26_public_methods_on(tmp_path: Path) -> None:
    def methods(count: int) -> str:
        return (
            "".join(f"    def m{n}(self): return {n}\n" for n in range(count)) + "    def _own(self): pass\n"
        )

    package = tree(tmp_path, a="class Narrow:\n" + methods(25), b="class Wide:\n" + methods(26))
    assert counts(package)["wide_classes"] == {"b.py:Wide": 26}


def test_a_class_name_that_occurs_twice_is_found(tmp_path: Path) -> None:
    package = tree(tmp_path, a="class Queue: ...", b="class Queue: ...", c="class Topic: ...")
    assert counts(package)["repeated_class_names"] == {"Queue": ["a.py", "b.py"]}


def test_imports_of_the_store_count_for_the_broker_alone(tmp_path: Path) -> None:
    package = tree(
        tmp_path,
        broker__a="from turbopump.store.store import Store",
        broker__b="from turbopump.store import store",
        broker__c="from turbopump.store.append import Draft",
        testing__d="from turbopump.store.store import Store",
    )
    assert counts(package)["store_imports"] == ["broker/a.py", "broker/b.py"]


def test_a_constructor_is_wide_from_11_parameters_on(tmp_path: Path) -> None:
    names = ", ".join(f"p{n}" for n in range(10))
    fields = "".join(f"    f{n}: int\n" for n in range(11))
    package = tree(
        tmp_path,
        a=f"class Ten:\n    def __init__(self, {names}): pass",
        b=f"class Eleven:\n    def __init__(self, {names}, *, last): pass",
        c=f"@dataclass\nclass Value:\n{fields}",
        d=f"@dataclass\nclass Handler:\n{fields}\n    def handle(self): return 1",
    )
    assert counts(package)["wide_constructors"] == {"b.py:Eleven": 11, "d.py:Handler": 11}


def test_tasks_are_started_in_one_module(tmp_path: Path) -> None:
    start = "def start(loop):\n    loop.create_task(run())\n    asyncio.ensure_future(run())\n"
    package = tree(tmp_path, runtime__tasks=start, broker__server=start)
    assert counts(package)["task_starts"] == {"broker/server.py": 2}


def test_generated_files_are_left_out(tmp_path: Path) -> None:
    generated = (
        '"""A face.\n\nWritten by scripts/faces.py from a module: change that.\n"""\n\nclass Queue: ...\n'
    )
    package = tree(tmp_path, a="class Queue: ...", blocking__a=generated)
    found = counts(package)
    assert found["files"] == 1
    assert not found["repeated_class_names"]


def test_a_file_is_long_from_501_lines_on(tmp_path: Path) -> None:
    package = tree(tmp_path, a="x = 1\n" * 500, b="x = 1\n" * 501)
    assert counts(package)["long_files"] == {"b.py": 501}


def test_functions_without_a_body_have_no_length(tmp_path: Path) -> None:
    package = tree(tmp_path, a="def declared(): ...\n\ndef short():\n    return 1\n")
    assert counts(package)["function_lines"] == {"count": 1, "median": 2, "p90": 2}


WIDE_CONSTRUCTORS = {
    "broker/part.py:Context": "what parts are built from; `build` alone sees it",
    "broker/replicas/slave_broker.py:SlaveBroker": "writes all tables of a master into those of its slave",
    "pipelines/log/plan.py:StoreQuery": "the options of a reader of the log, all of them optional",
}
"""Classes that need more than 10 things, with the reason."""

LONG_FILES = {
    "broker/config.py": "the fields of the broker's configuration, a dataclass for each subject",
    "broker/delay/levels.py": "delay levels",
    "broker/delay/timers.py": "timers",
    "broker/groups/offsets.py": "committed offsets, with those of crashes",
    "broker/settings.py": "a table: every key of Apache's",
    "broker/transactions/book/book.py": "global transactions: what is decided about each",
    "client/produce/producer.py": "the public producer; half of it is documentation",
    "client/settings.py": "a table: every setting of the client",
    "namesrv/routes.py": "the route table and its rules",
    "pipelines/source/plan.py": "what a batch of a stream reads",
    "remoting/connection.py": "the shared core of connections",
}
"""Files with more than 500 lines, and what is in them. A new one is a question: what in it wants a name?"""

TASK_STARTS = {
    "client/background.py": "the thread of blocking clients runs that loop",
    "transactions/distributed/driven.py": "two waits, of which one is enough; the call ends both",
    "transactions/distributed/recovery.py": "a TaskGroup owns them",
    "transactions/distributed/tcc_block.py": "a wait that the call ends",
    "transactions/distributed/xa_block.py": "branches that begin at once; the call waits for all",
}
"""Modules that start tasks themselves, and who ends them; elsewhere `runtime/tasks.py` owns tasks."""


def test_our_tree_stays_readable() -> None:
    found = counts(Path(__file__).parents[3] / "src/turbopump")
    assert found["repeated_class_names"] == {}
    assert found["wide_classes"] == {}
    assert set(found["wide_constructors"]) == set(WIDE_CONSTRUCTORS)
    assert set(found["long_files"]) == set(LONG_FILES)
    assert set(found["task_starts"]) == set(TASK_STARTS)
    assert found["function_lines"]["median"] <= 7
    assert found["function_lines"]["p90"] <= 18
    assert found["start_lines"] <= 50
    assert len(found["store_imports"]) <= 3
