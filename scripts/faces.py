"""Writes src/turbopump/client/blocking/, and that of transactions: blocking clients, from the async ones.

Run `python scripts/faces.py` after a change of a public signature or docstring; a unit test fails when the
files are not current. A method becomes what its kind says:

    async def f() -> T                      waits:  self._run(…)
    async def f() -> AsyncIterator[T]       an iterator: self._iterate(…)
    def f() -> asyncio.Task[T]              a concurrent.futures.Future: self._submit(…)
    def f() -> Callable[[F], F]             a decorator, noted for forked processes
    def f() -> Block                        the face of a block, which begins and ends on the loop
    def f(), properties                     on the loop, which owns the state: self._call(…)

What cannot be generated is written by hand in `face.py`, `producer_face.py`, `consumer_face.py`,
`pull_consumer_face.py`, and `coordinator_face.py` of transactions.
Methods that only the instance of a client calls (`instance.ProducerMember`, `instance.ConsumerMember`,
`rebalancer.QueueHolder`), or a part of a coordinator (`XaHost` …), get no face.
"""

import ast
import builtins
import functools
import importlib
import inspect
import re
import subprocess
import sys
import textwrap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from turbopump.client import instance
from turbopump.client.group import rebalancer
from turbopump.transactions.distributed import recovery, saga_runs, tcc_block, xa_block

SOURCE_FOLDER = Path(__file__).parents[1] / "src"
FOLDER = SOURCE_FOLDER / "turbopump/client/blocking"

HEAD = '"""{title}\n\nWritten by scripts/faces.py from {module}: change that.\n"""\n\n'

SETTINGS = {
    "ProducerOptions": "ProducerSettings",
    "ConsumerOptions": "ConsumerSettings",
    "PullOptions": "PullSettings",
    "ClientOptions": "ClientSettings",
}


@dataclass(frozen=True)
class Source:
    """An async class, and the file that its face goes to."""

    file: str
    module: str
    name: str
    title: str
    base: str = "Face"
    by_hand: frozenset[str] = frozenset()
    """Methods that the base has, or that make no sense in a blocking client."""
    package: str = "turbopump.client.blocking"
    blocks: Mapping[str, str] = field(default_factory=dict)
    """Classes of blocks that methods return, and their modules."""
    noted: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Methods that are repeated when a forked process makes a new core, and the arguments that distinguish
    one call from another: of equal ones the last counts.
    """


SOURCES = (
    Source(
        "producer",
        "turbopump.client.produce.producer",
        "Producer",
        "The blocking producer.",
        base="ProducerFace",
        by_hand=frozenset({"transaction", "send_in_transaction"}),
    ),
    Source(
        "consumer",
        "turbopump.client.push.consumer",
        "Consumer",
        "The blocking push consumer.",
        base="ConsumerFace",
        by_hand=frozenset({"run"}),
        noted={
            "on": ["topic", "tags"],
            "subscribe": ["topic", "tags"],
            "unsubscribe": ["topic"],
            "on_queues_changed": ["topic", "callback"],
        },
    ),
    Source(
        "pull_consumer",
        "turbopump.client.pull.consumer",
        "PullConsumer",
        "The blocking pull consumer.",
        base="PullConsumerFace",
        noted={
            "subscribe": ["topic"],
            "unsubscribe": ["topic"],
            "schedule": ["topic"],
            "on_queues_changed": ["topic", "callback"],
        },
    ),
    Source(
        "admin",
        "turbopump.client.admin.admin",
        "Admin",
        "Blocking administration.",
        by_hand=frozenset({"producer"}),
    ),
    Source(
        "coordinator",
        "turbopump.transactions.distributed.coordinator",
        "Coordinator",
        "The blocking coordinator of global transactions.",
        base="CoordinatorFace",
        by_hand=frozenset({"recover"}),
        package="turbopump.transactions.blocking",
        blocks={
            "XaTransaction": "turbopump.transactions.distributed.xa_block",
            "TccTransaction": "turbopump.transactions.distributed.tcc_block",
        },
    ),
)
BASES = {
    "CoordinatorFace": "turbopump.transactions.blocking.coordinator_face",
    "Face": "turbopump.client.blocking.face",
    "FaceBlock": "turbopump.transactions.blocking.coordinator_face",
    "FacePart": "turbopump.client.blocking.face",
    "PullConsumerFace": "turbopump.client.blocking.pull_consumer_face",
    "ConsumerFace": "turbopump.client.blocking.consumer_face",
    "ProducerFace": "turbopump.client.blocking.producer_face",
}
PARTS = ("FacePart", "FaceBlock")
PARTS_IN = "turbopump.client.admin."
NO_PARTS = frozenset({"AdminCalls"})


def texts() -> dict[Path, str]:
    """Returns the expected text of every generated file."""
    return {
        SOURCE_FOLDER / source.package.replace(".", "/") / f"{source.file}.py": _tidy(_file(source))
        for source in SOURCES
    }


def _file(source: Source) -> str:
    module = Module.of(source.module)
    whole = Class(module, module.classes[source.name])
    parts = {name: Class.at(kind, at) for name, kind, at in _parts(whole)}
    given_out = {kind: Class.at(kind, at) for kind, at in _given_out(whole, source)}
    kinds = {part.name: part for part in [*parts.values(), *given_out.values()]}
    blocks = [Class.at(name, module) for name, module in source.blocks.items()]
    imports = Imports(local={source.name, *kinds, *source.blocks})
    bodies = [_block(block, imports) for block in blocks]  # first: annotations of the face name them
    bodies.append(_face(source, whole, parts, imports))
    bodies += [_part(source.name, part, imports) for part in kinds.values()]
    names = [source.name, *kinds, *source.blocks]
    return "\n\n".join(
        [
            HEAD.format(title=source.title, module=source.module),
            imports.text(),
            f"__all__ = {sorted(names)!r}",
            *bodies,
        ]
    )


# --- the source ------------------------------------------------------------------------------------------


@dataclass
class Module:
    name: str
    imports: dict[str, str]
    """Name → the statement that imports it."""
    classes: dict[str, ast.ClassDef]

    @classmethod
    def of(cls, name: str) -> "Module":
        tree = ast.parse(inspect.getsource(importlib.import_module(name)))
        found: dict[str, str] = {}
        classes = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    text = alias.name + (f" as {alias.asname}" if alias.asname else "")
                    found[alias.asname or alias.name] = f"from {node.module} import {text}"
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    found[alias.name.partition(".")[0]] = f"import {alias.name}"
        for node in tree.body:
            for defined in _defined(node):
                found[defined] = f"from {name} import {defined}"
            if isinstance(node, ast.ClassDef):
                classes[node.name] = node
        return cls(name, found, classes)


def _defined(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return [node.name]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    if isinstance(node, ast.TypeAlias) if hasattr(ast, "TypeAlias") else False:
        return [node.name.id]
    return []


@dataclass
class Class:
    module: Module
    node: ast.ClassDef

    @classmethod
    def at(cls, name: str, module: str) -> "Class":
        there = Module.of(module)
        return cls(there, there.classes[name])

    @property
    def name(self) -> str:
        return self.node.name

    def with_bases(self) -> list["Class"]:
        """Returns the class, and those of its bases that its module imports from the client."""
        names = [base.id for base in self.node.bases if isinstance(base, ast.Name)]
        found = [re.fullmatch(r"from (turbopump\S+) import \w+", self.module.imports[name]) for name in names]
        bases = [Class.at(name, one[1]) for name, one in zip(names, found, strict=True) if one]
        return [self, *bases]

    def methods(self) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
        return [one for one in self.node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]

    def constructor(self) -> ast.FunctionDef:
        return next(one for one in self.methods() if one.name == "__init__")  # type: ignore[return-value]


@dataclass
class Imports:
    local: set[str]
    statements: set[str] = field(default_factory=set)
    brought: dict[str, str] = field(default_factory=dict)

    def add(self, statement: str) -> None:
        self.statements.add(statement)

    def need(self, module: Module, node: ast.AST | None) -> None:
        """Adds imports for all names that an annotation or a default uses."""
        if node is None:
            return
        for one in ast.walk(node):
            if isinstance(one, ast.Constant) and isinstance(one.value, str):
                quoted = re.fullmatch(r"[A-Za-z_][\w.\[\], |]*", one.value)
                if quoted and one.value in module.imports:
                    self._need_name(module, one.value)
            elif isinstance(one, ast.Name):
                self._need_name(module, one.id)

    def _need_name(self, module: Module, name: str) -> None:
        if name in self.local or (hasattr(builtins, name) and name not in module.imports):
            return
        statement = module.imports[name]
        if self.brought.setdefault(name, statement) != statement:
            raise SystemExit(f"{name} means two things: {statement} and {self.brought[name]}")
        self.add(statement)

    def text(self) -> str:
        return "\n".join(sorted(self.statements))


def _parts(whole: Class) -> list[tuple[str, str, str]]:
    """Returns the parts that the constructor makes: attribute, class, module."""
    found = []
    for node in ast.walk(whole.constructor()):
        if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)):
            continue
        if not isinstance(node.value.func, ast.Name):
            continue
        kind = node.value.func.id
        match = re.fullmatch(r"from (\S+) import \w+", whole.module.imports.get(kind, ""))
        target = next((one for one in node.targets if isinstance(one, ast.Attribute)), None)
        if match and target and match[1].startswith(PARTS_IN) and kind not in NO_PARTS:
            found.append((target.attr, kind, match[1]))
    return found


def _given_out(whole: Class, source: Source) -> list[tuple[str, str]]:
    """Returns the parts that methods return: class, module."""
    found = []
    for method in whole.methods():
        kind = ast.unparse(method.returns).strip("'\"") if method.returns else ""
        match = re.fullmatch(r"from (\S+) import \w+", whole.module.imports.get(kind, ""))
        if match and match[1].startswith(PARTS_IN) and _is_public(method, source):
            found.append((kind, match[1]))
    return found


# --- faces -----------------------------------------------------------------------------------------------


def _face(source: Source, whole: Class, parts: dict[str, Class], imports: Imports) -> str:
    imports.add(f"from {BASES[source.base]} import {source.base}")
    imports.add(f"from {source.module} import {whole.name} as Async{whole.name}")
    plain = source.base in ("ProducerFace", "CoordinatorFace")
    base = source.base if plain else f"{source.base}[Async{whole.name}]"
    lines = [f"class {whole.name}({base}):", _docstring(whole.node)]
    constructor = whole.constructor()
    if constructor.args.kwarg is not None:
        lines.insert(0, _spelled_out(constructor, imports))
    if "Consumer" in source.name:
        lines.append(_indented("_restarts_after_fork = False"))
    lines.append(_constructor(whole, constructor, parts, imports))
    if constructor.args.kwarg is not None:
        lines += _attributes(constructor)
    for kind in whole.with_bases():
        lines += [_method(one, kind, source, imports) for one in kind.methods() if _is_public(one, source)]
    return "\n".join(line for line in lines if line)


def _part(owner: str, part: Class, imports: Imports) -> str:
    imports.add(f"from {BASES['FacePart']} import FacePart")
    imports.add(f"from {part.module.name} import {part.name} as Async{part.name}")
    source = Source("", part.module.name, part.name, "", base="FacePart")
    title = _docstring(part.node) or _indented('"""' + _first_line(part.module) + '"""')
    lines = [f"class {part.name}(FacePart[Async{owner}, Async{part.name}]):", title]
    lines += [_method(one, part, source, imports) for one in part.methods() if _is_public(one, source)]
    return "\n".join(lines)


def _block(block: Class, imports: Imports) -> str:
    imports.add(f"from {BASES['FaceBlock']} import FaceBlock")
    imports.add(f"from {block.module.name} import {block.name} as Async{block.name}")
    source = Source("", block.module.name, block.name, "", base="FaceBlock")
    lines = [f"class {block.name}(FaceBlock[Async{block.name}]):", _docstring(block.node)]
    lines += [_method(one, block, source, imports) for one in block.methods() if _is_public(one, source)]
    return "\n".join(lines)


def _first_line(module: Module) -> str:
    told = inspect.getdoc(importlib.import_module(module.name)) or ""
    return " ".join(told.partition("\n\n")[0].split())


def _is_public(method: ast.FunctionDef | ast.AsyncFunctionDef, source: Source) -> bool:
    if method.name in source.by_hand or (source.base not in PARTS and method.name in _for_instances()):
        return False
    return method.name in (*ITERATION, "__getitem__") or not method.name.startswith("_")


@functools.cache
def _for_instances() -> frozenset[str]:
    kinds = (
        instance.ProducerMember,
        instance.ConsumerMember,
        rebalancer.QueueHolder,
        xa_block.XaHost,
        tcc_block.TccHost,
        saga_runs.SagaHost,
        recovery.RecoveryHost,
    )
    return frozenset(name for kind in kinds for name in vars(kind) if not name.startswith("_"))


def _attributes(constructor: ast.FunctionDef) -> list[str]:
    """Returns the properties that never change: they are read from the core in the caller's thread."""
    has = {node.attr for node in ast.walk(constructor) if isinstance(node, ast.Attribute)}
    return [
        _indented(f'@property\ndef {name}(self) -> {kind}:\n    """{told}"""\n    return self._core.{name}')
        for name, kind, told in (
            ("group", "str", "Its group."),
            ("settings", _settings(constructor), "All settings, defaults included."),
        )
        if name in has
    ]


def _settings(constructor: ast.FunctionDef) -> str:
    assert constructor.args.kwarg is not None
    options = ast.unparse(constructor.args.kwarg.annotation or ast.Constant(""))
    return SETTINGS[options.removeprefix("Unpack[").removesuffix("]")]


def _spelled_out(constructor: ast.FunctionDef, imports: Imports) -> str:
    settings = _settings(constructor)
    imports.add(f"from turbopump.client.settings import {settings}")
    imports.add("from turbopump.client.signature import spelled_out")
    return f"@spelled_out({settings})"


def _constructor(
    whole: Class, constructor: ast.FunctionDef, parts: dict[str, Class], imports: Imports
) -> str:
    arguments = _arguments(constructor.args, whole.module, imports)
    lines = [f"def __init__({arguments}) -> None:"]
    if told := _docstring(constructor):
        lines.append(told)
    made = f"Async{whole.name}({_passed(constructor.args)})"
    lines.append(_indented(f"super().__init__(lambda: {made})"))
    lines += [
        _indented(f"self.{name} = {part.name}(self, lambda core: core.{name})")
        for name, part in parts.items()
    ]
    return _indented("\n".join(lines))


def _method(
    method: ast.FunctionDef | ast.AsyncFunctionDef, of: Class, source: Source, imports: Imports
) -> str:
    if method.name in ITERATION:
        return _iteration(method, of, imports)
    decorators = [ast.unparse(one) for one in method.decorator_list]
    returns = method.returns
    arguments = _arguments(method.args, of.module, imports)
    passed = f"core.{method.name}({_passed(method.args)})"
    if "property" in decorators:
        passed = f"core.{method.name}"
    if method.name == "__getitem__":
        passed = f"core[{method.args.args[1].arg}]"
    way, answer = _way(method, source, returns, imports.local)
    if answer is not None:
        imports.need(of.module, answer)
    told = "None" if answer is None else ast.unparse(answer)
    if way == "_submit":
        imports.add("import concurrent.futures")
        told = f"concurrent.futures.Future[{told}]"
    if way == "_iterate":
        imports.add("from collections.abc import Iterator")
        told = f"Iterator[{told}]"
    head = [f"@{one}" for one in decorators if one == "property" or one.endswith(".setter")]
    head += [f"def {method.name}({arguments}) -> {told}:", _docstring(method)]
    return _indented("\n".join([line for line in head if line] + _body(way, method, passed, told, source)))


def _body(
    way: str, method: ast.FunctionDef | ast.AsyncFunctionDef, passed: str, told: str, source: Source
) -> list[str]:
    if way == "decorator":
        return [
            _indented(line)
            for line in (
                "def register(handler: F) -> F:",
                f"    self._call(lambda core: {passed}(handler))",
                f"    {_noted(method.name, f'{passed}(handler)', source)}",
                "    return handler",
                "",
                "return register",
            )
        ]
    if way == "part":
        kind = told.strip("'")
        if source.base == "FacePart":
            rest = passed.removeprefix("core.")
            return [_indented(f"return {kind}(self._whole, lambda core: self._pick(core).{rest})")]
        return [_indented(f"return {kind}(self, lambda core: {passed})")]
    if way == "block":
        return [_indented(f"return {told}(self, self._new_block(lambda core: {passed}))")]
    if way == "setter":
        value = method.args.args[1].arg
        return [_indented(f'self._call(lambda core: setattr(core, "{method.name}", {value}))')]
    if way == "_start":
        return [_indented(f"self._start(lambda core: {passed})")]
    if way == "_close":
        return [_indented("self._close()")]
    if method.name in source.noted:
        assert told == "None"
        noted = _noted(method.name, passed, source)
        return [_indented(f"self.{way}(lambda core: {passed})"), _indented(noted)]
    keyword = "" if told == "None" else "return "
    return [_indented(f"{keyword}self.{way}(lambda core: {passed})")]


def _noted(name: str, passed: str, source: Source) -> str:
    key = ", ".join([f'"{name}"', *source.noted[name]])
    return f"self._note(({key}), lambda core: {passed})"


def _way(
    method: ast.FunctionDef | ast.AsyncFunctionDef,
    source: Source,
    returns: ast.expr | None,
    faces: Collection[str],
) -> tuple[str, ast.expr | None]:
    """How the face gets at it, and what comes back (None: nothing)."""
    told = "" if returns is None else ast.unparse(returns)
    inner = returns.slice if isinstance(returns, ast.Subscript) else None
    answer = None if told in ("", "None") else returns
    if source.base not in PARTS and method.name in ("start", "close"):
        return f"_{method.name}", None
    if told.startswith(("AsyncIterator[", "AsyncGenerator[")):
        return "_iterate", inner.elts[0] if isinstance(inner, ast.Tuple) else inner
    if isinstance(method, ast.AsyncFunctionDef):
        return "_run", answer
    if told.startswith(("asyncio.Task[", "asyncio.Future[", "Task[", "Future[")):
        return "_submit", inner
    if told == "Callable[[F], F]":
        return "decorator", answer
    if any(ast.unparse(one).endswith(".setter") for one in method.decorator_list):
        return "setter", None
    if told in source.blocks:
        return "block", answer
    if (kind := told.strip("'\"")) in faces:
        return "part", ast.Constant(kind)
    return "_call", answer


ITERATION = {"__aiter__": "__iter__", "__anext__": "__next__"}


def _iteration(method: ast.FunctionDef | ast.AsyncFunctionDef, of: Class, imports: Imports) -> str:
    told = _docstring(method)
    if method.name == "__anext__":
        imports.need(of.module, method.returns)
        answer = ast.unparse(method.returns) if method.returns else "object"
        lines = [f"def __next__(self) -> {answer}:", told]
        lines.append(_indented("return self._next(lambda core: core.__anext__())"))
    elif method.returns is not None and ast.unparse(method.returns).startswith("AsyncI"):
        assert isinstance(method.returns, ast.Subscript)
        imports.need(of.module, method.returns.slice)
        imports.add("from collections.abc import Iterator")
        lines = [f"def __iter__(self) -> Iterator[{ast.unparse(method.returns.slice)}]:", told]
        lines.append(_indented("return self._iterate(lambda core: core.__aiter__())"))
    else:
        imports.add("from typing import Self")
        lines = ["def __iter__(self) -> Self:", told, _indented("return self")]
    return _indented("\n".join(line for line in lines if line))


# --- text ------------------------------------------------------------------------------------------------


def _arguments(arguments: ast.arguments, module: Module, imports: Imports) -> str:
    for one in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
        imports.need(module, one.annotation)
    for extra in (arguments.vararg, arguments.kwarg):
        imports.need(module, extra.annotation if extra else None)
    for default in [*arguments.defaults, *arguments.kw_defaults]:
        imports.need(module, default)
    return ast.unparse(arguments)


def _passed(arguments: ast.arguments) -> str:
    """The same arguments, handed on."""
    _, *plain = [one.arg for one in [*arguments.posonlyargs, *arguments.args]]
    if arguments.vararg:
        plain.append(f"*{arguments.vararg.arg}")
    plain += [f"{one.arg}={one.arg}" for one in arguments.kwonlyargs]
    if arguments.kwarg:
        plain.append(f"**{arguments.kwarg.arg}")
    return ", ".join(plain)


def _docstring(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    if ast.get_docstring(node) is None:
        return ""
    told = _dedented(node.body[0])
    return _indented(f'{"r" if chr(92) in told else ""}"""{blocking(told)}"""')


def _dedented(docstring: ast.stmt) -> str:
    """By the indentation of its function, so that an example at its end stays indented."""
    assert isinstance(docstring, ast.Expr)
    assert isinstance(docstring.value, ast.Constant)
    first, *rest = str(docstring.value.value).split("\n")
    lines = [line[docstring.col_offset :] if line.strip() else "" for line in rest]
    return "\n".join([first, *lines]).strip()


def blocking(told: str) -> str:
    """A docstring for who waits: in code, indented or between backticks, nothing is awaited.

    >>> blocking("After `async with`, await this.")
    'After `with`, await this.'
    """
    lines = []
    for line in told.split("\n"):
        is_code = line.startswith(("    ", ">>>", "...")) and line.strip() != ""
        if is_code:
            line = _plain(line).replace("async def ", "def ")
        lines.append(re.sub(r"`[^`]+`", lambda span: _plain(span[0]), line))
    joined = "\n".join(lines)
    for async_words, plain in WORDS.items():
        joined = joined.replace(async_words, plain)
    return joined + ("\n" if joined.endswith('"') or "\n" in joined else "")


WORDS = {
    "all tasks of its event loop": "all threads",
    "the task has the result": "the future has the result",
    "One task reads": "One thread reads",
}
"""Prose that is another one for who waits."""


def _plain(code: str) -> str:
    code = re.sub(r"\basync (with|for)\b", r"\1", code)
    code = re.sub(r"\bawait ", "", code)
    code = code.replace("turbopump.aio", "turbopump")
    return code.replace("asyncio.Task", "concurrent.futures.Future")


def _indented(text: str) -> str:
    return textwrap.indent(text, "    ")


def _tidy(text: str) -> str:
    for command in (["check", "--quiet", "--fix", "--select", "I,F401"], ["format", "--quiet"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(FOLDER / "written.py"), "-"]
        done = subprocess.run(ruff, input=text, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{done.stderr}\n{text}")
        text = done.stdout
    return text


if __name__ == "__main__":
    for path, text in texts().items():
        path.write_text(text)
