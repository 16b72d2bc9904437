"""The blocking clients are what scripts/faces.py makes of the async ones, and read well."""

import ast
import inspect
import pydoc
import re
from types import ModuleType

import pytest
from scripts import faces

import turbopump.aio
from turbopump.client.blocking import admin

WAYS = {
    "async def read(self, n: int = 3) -> bytes: ...": (
        "def read(self, n: int=3) -> bytes:",
        "return self._run(lambda core: core.read(n))",
    ),
    "async def stop(self, *, now: bool) -> None: ...": (
        "def stop(self, *, now: bool) -> None:",
        "self._run(lambda core: core.stop(now=now))",
    ),
    "def send_async(self, m: str) -> asyncio.Task[int]: ...": (
        "def send_async(self, m: str) -> concurrent.futures.Future[int]:",
        "return self._submit(lambda core: core.send_async(m))",
    ),
    "def lines(self) -> AsyncIterator[str]: ...": (
        "def lines(self) -> Iterator[str]:",
        "return self._iterate(lambda core: core.lines())",
    ),
    "def pause(self) -> None: ...": (
        "def pause(self) -> None:",
        "self._call(lambda core: core.pause())",
    ),
    "@property\ndef group(self) -> str: ...": (
        "@property\n    def group(self) -> str:",
        "return self._call(lambda core: core.group)",
    ),
    "@workers.setter\ndef workers(self, count: int) -> None: ...": (
        "@workers.setter\n    def workers(self, count: int) -> None:",
        'self._call(lambda core: setattr(core, "workers", count))',
    ),
    "async def start(self) -> None: ...": (
        "def start(self) -> None:",
        "self._start(lambda core: core.start())",
    ),
    "async def close(self) -> None: ...": ("def close(self) -> None:", "self._close()"),
    "def __aiter__(self) -> AsyncIterator[str]: ...": (
        "def __iter__(self) -> Iterator[str]:",
        "return self._iterate(lambda core: core.__aiter__())",
    ),
}


@pytest.mark.parametrize("method", WAYS)
def test_a_method_becomes_what_its_kind_says(method: str) -> None:
    tree = ast.parse(f"class Source:\n{faces._indented(method)}")
    node = tree.body[0]
    assert isinstance(node, ast.ClassDef)
    of = faces.Class(faces.Module("source", {"asyncio": "import asyncio"}, {}), node)
    made = faces._method(of.methods()[0], of, faces.SOURCES[0], faces.Imports(set()))
    for line in WAYS[method]:
        assert line in made


def test_the_files_are_current() -> None:
    for path, text in faces.texts().items():
        assert path.read_text() == text, f"{path.name} is not current: run python scripts/faces.py"


def test_every_public_method_of_an_async_class_has_a_face_with_the_same_arguments() -> None:
    for source in faces.SOURCES:
        there = _class(source.module, source.name)
        here = _class(f"{source.package}.{source.file}", source.name)
        for name, method in inspect.getmembers(there, inspect.isfunction):
            if name.startswith("_") or name in source.by_hand | faces._for_instances():
                continue
            face = getattr(here, name)
            given, asked = (inspect.signature(one).parameters for one in (face, method))
            assert [str(one) for one in given.values()] == [str(one) for one in asked.values()], name


def test_docstrings_of_faces_await_nothing() -> None:
    for source in faces.SOURCES:
        here = _class(f"{source.package}.{source.file}", source.name)
        told = pydoc.render_doc(here, renderer=pydoc.plaintext)
        code = "\n".join(re.findall(r"`[^`]+`", told) + re.findall(r"^ \|\s{6,}.*$", told, re.MULTILINE))
        assert not re.search(r"async (with|for)|await \w|turbopump\.aio import", code), source.name


def test_examples_are_turned_into_blocking_ones() -> None:
    told = "After `async with`, await nothing.\n\n    async with Producer() as p:\n        await p.send(m)"
    assert faces.blocking(told) == (
        "After `with`, await nothing.\n\n    with Producer() as p:\n        p.send(m)\n"
    )


@pytest.mark.parametrize("package", [turbopump, turbopump.aio])
@pytest.mark.parametrize("name", ["Producer", "Consumer", "PullConsumer", "Admin"])
def test_help_shows_every_setting_with_its_default(package: ModuleType, name: str) -> None:
    told = pydoc.render_doc(getattr(package, name), renderer=pydoc.plaintext)
    assert "namespace: str = ''" in told
    assert "**settings" not in told.partition("Methods defined here")[0]
    assert "heartbeat_broker_interval = 30.0: interval between heartbeats" in told
    assert " object at 0x" not in told


def test_parts_of_the_administration_have_faces() -> None:
    parts = {name for name, _, _ in faces._parts(_whole_admin())}
    assert {"topics", "groups", "offsets", "messages", "clusters", "brokers"} <= parts
    assert isinstance(admin.Admin(["127.0.0.1:9876"]).messages.as_group("readers"), admin.Messages)


def _whole_admin() -> faces.Class:
    module = faces.Module.of("turbopump.client.admin.admin")
    return faces.Class(module, module.classes["Admin"])


def _class(module: str, name: str) -> type:
    return getattr(__import__(module, fromlist=[name]), name)  # type: ignore[no-any-return]
