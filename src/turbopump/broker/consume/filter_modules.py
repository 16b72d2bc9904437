"""Runs message filters that users write as WebAssembly modules, the third kind beside tags and SQL92.

In: a directory that `broker.conf` names, with one module per file. Out: for a message, whether the module
accepts it, or `FilterFailed`. No code is ever received over the wire: a consumer only names a module.

A module gets no imports, so it has no file, no network, no clock and no shell. Its fuel is limited per
message and its memory in total (`FilterLimits`); a module that exceeds a limit, or traps, is instantiated
again for the next message, and other pulls are not affected.

Exports of a module:

    memory   its only memory
    input    a constant, i32: the host writes from this address on
    matches  a function (properties_size i32, body_size i32) -> i32: 0 rejects the message

At `input` lie the properties as they are stored (name 0x01 value 0x02 name 0x01 ...), then the body.
"""

import errno
import importlib
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from turbopump.broker.config import FilterRules
from turbopump.protocol.names import MODULE_NAME
from turbopump.runtime.disk import Disk

log = logging.getLogger(__name__)

SUFFIXES = (".wasm", ".wat")  # binary and text format
MAX_MODULE_BYTES = 1 << 20
MAX_MODULES = 100
MAX_STACK_BYTES = 256 << 10
TABLE_ELEMENTS = 10_000
PAGE = 65_536

Make = Callable[[], "Instance"]


class FilterFailed(Exception):
    """Raised when a filter module cannot decide about a message: it trapped, or exceeded fuel or memory."""


class UnusableModule(Exception):
    """Raised at load when a file is not a usable filter module; the text says why."""


class FiltersNotInstalled(Exception):
    """Raised when filter modules are configured but wasmtime is missing; the text says what to install."""


@dataclass(frozen=True, slots=True)
class FilterLimits:
    """Limits of a filter module: fuel (instructions) per message, and memory in bytes per module."""

    fuel: int = 1_000_000  # instructions for one message: about 1 ms
    memory_bytes: int = 16 << 20  # for one module


class Instance:
    """Running wasmtime instance of one filter module; discarded after its first failure."""

    def __init__(self, wasmtime: Any, engine: Any, module: Any, limits: FilterLimits) -> None:
        self._limits = limits
        self._store = wasmtime.Store(engine)
        self._store.set_limits(
            memory_size=limits.memory_bytes, table_elements=TABLE_ELEMENTS, instances=1, tables=1, memories=1
        )
        self._store.set_fuel(limits.fuel)
        exports = wasmtime.Instance(self._store, module, []).exports(self._store)
        self._memory, self._matches = exports["memory"], exports["matches"]
        self._input: int = exports["input"].value(self._store)

    def matches(self, properties: bytes, body: bytes) -> bool:
        self._grow_memory(len(properties) + len(body))
        self._memory.write(self._store, properties + body, self._input)
        self._store.set_fuel(self._limits.fuel)
        return bool(self._matches(self._store, len(properties), len(body)))

    def _grow_memory(self, size: int) -> None:
        if self._input < 0:
            raise FilterFailed(f"the address of input must not be negative, got {self._input}")
        lacking = self._input + size - self._memory.data_len(self._store)
        if lacking > 0:
            self._memory.grow(self._store, -(-lacking // PAGE))


class FilterModule:
    """Compiled filter module with its running instance, which it replaces after a failure."""

    def __init__(self, name: str, make: Make, failures: tuple[type[Exception], ...]) -> None:
        self.name = name
        self._make = make
        self._failures = failures
        self._instance: Instance | None = None

    def matches(self, properties: bytes, body: bytes) -> bool:
        """Returns whether the module accepts a message; raises FilterFailed if it traps or exceeds a limit.

        Takes no longer than the fuel of one message lasts.
        """
        try:
            self._instance = self._instance or self._make()
            return self._instance.matches(properties, body)
        except self._failures as error:
            self._instance = None
            first_line = str(error).strip().splitlines()[-1:] or [type(error).__name__]
            raise FilterFailed(f"the filter module {self.name} failed: {first_line[0].strip()}") from None


class FilterModules(Mapping[str, FilterModule]):
    """Mapping from name to loaded filter module; `refused` has the reason for each unusable one."""

    def __init__(self, modules: Mapping[str, FilterModule], refused: Mapping[str, str]) -> None:
        self._modules = modules
        self.refused = refused
        """Name -> why the module cannot be used."""

    def __getitem__(self, name: str) -> FilterModule:
        return self._modules[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)


def load_configured(rules: FilterRules, disk: Disk) -> FilterModules | None:
    """Returns the modules of the configured directory; None: no directory is configured. Blocks."""
    if not rules.module_dir:
        return None
    return load(rules.module_dir, disk, FilterLimits(rules.module_fuel, rules.module_memory))


def load(directory: str, disk: Disk, limits: FilterLimits) -> FilterModules:
    """Returns the compiled modules of a directory; unusable files are logged and listed as refused. Blocks.

    Raises FiltersNotInstalled, or OSError when there is no such directory.
    """
    if not disk.exists(directory):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), directory)
    wasmtime = _wasmtime()
    engine = _engine(wasmtime)
    found: dict[str, FilterModule] = {}
    refused: dict[str, str] = {}
    for file in sorted(disk.entries(directory), key=lambda entry: entry.name):
        name, suffix = os.path.splitext(file.name)
        if file.is_dir or suffix not in SUFFIXES:
            continue
        try:
            _check(name, file.size, len(found), name in found)
            code = disk.read(os.path.join(directory, file.name))
            found[name] = _module(wasmtime, engine, name, code, limits)
        except UnusableModule as error:
            refused[name] = str(error)
            log.error("Cannot use the filter module %s: %s", file.name, error)
    log.info("Filter modules: %s", ", ".join(found) or "none")
    return FilterModules(found, refused)


def _check(name: str, size: int, count: int, is_known: bool) -> None:
    if not MODULE_NAME.fullmatch(name):
        raise UnusableModule("its name must have at most 64 letters, digits, _ and -")
    if is_known:
        raise UnusableModule("another file has the same name")
    if size > MAX_MODULE_BYTES:
        raise UnusableModule(f"it must have at most {MAX_MODULE_BYTES} bytes, got {size}")
    if count >= MAX_MODULES:
        raise UnusableModule(f"the directory has more than {MAX_MODULES} modules")


def _wasmtime() -> Any:
    try:
        return importlib.import_module("wasmtime")
    except ImportError:
        raise FiltersNotInstalled(
            "filter modules need wasmtime: pip install 'turbopump[filters]', or set no filterModulePath"
        ) from None


def _engine(wasmtime: Any) -> Any:
    config = wasmtime.Config()
    config.consume_fuel = True
    config.max_wasm_stack = MAX_STACK_BYTES
    config.wasm_threads = False
    config.wasm_memory64 = False
    config.wasm_multi_memory = False
    config.signals_based_traps = False  # the process keeps its own signal handlers
    return wasmtime.Engine(config)


def _module(wasmtime: Any, engine: Any, name: str, code: bytes, limits: FilterLimits) -> FilterModule:
    """Returns a compiled module after one trial instantiation; raises UnusableModule if it is invalid."""
    failures = (wasmtime.WasmtimeError, wasmtime.Trap, FilterFailed, IndexError, RuntimeError)
    try:
        compiled = code if code.startswith(b"\0asm") else wasmtime.wat2wasm(code.decode())
        module = wasmtime.Module(engine, compiled)
    except UnicodeDecodeError:
        raise UnusableModule("it is neither a WebAssembly module nor the text of one") from None
    except wasmtime.WasmtimeError as error:
        raise UnusableModule(_in_a_line(error)) from None
    if module.imports:
        raise UnusableModule(f"it must have no imports, got {len(module.imports)}")
    _check_exports(wasmtime, module)

    def make() -> Instance:
        return Instance(wasmtime, engine, module, limits)

    try:
        make()
    except failures as error:
        raise UnusableModule(_in_a_line(error)) from None
    return FilterModule(name, make, failures)


def _check_exports(wasmtime: Any, module: Any) -> None:
    exports = {one.name: one.type for one in module.exports}
    i32 = wasmtime.ValType.i32()
    memory, start, matches = (exports.get(name) for name in ("memory", "input", "matches"))
    if not isinstance(memory, wasmtime.MemoryType):
        raise UnusableModule("it must export a memory named memory")
    if not isinstance(start, wasmtime.GlobalType) or start.content != i32 or start.mutable:
        raise UnusableModule("it must export a constant named input of type i32")
    if not isinstance(matches, wasmtime.FuncType) or (matches.params, matches.results) != ([i32, i32], [i32]):
        raise UnusableModule("it must export a function named matches of type (i32, i32) -> i32")


def _in_a_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
