"""Filter modules: what they are told, and what they cannot do, whatever they try."""

import sys
from pathlib import Path

import pytest
from tests.unit.store.lab import new_disk

from turbopump.broker.consume import filter_modules
from turbopump.broker.consume.filter_modules import (
    FilterFailed,
    FilterLimits,
    FilterModule,
    FilterModules,
    FiltersNotInstalled,
    load,
)

EXAMPLES = Path(__file__).parents[3] / "examples" / "filters"
LIMITS = FilterLimits(fuel=100_000, memory_bytes=1 << 20)


def head(pages: int = 1, address: int = 1024) -> str:
    return f'(memory (export "memory") {pages}) (global (export "input") i32 (i32.const {address}))'


HEAD = head()
MATCHES = '(func (export "matches") (param $properties i32) (param $body i32) (result i32)'


def loaded(limits: FilterLimits = LIMITS, **texts: str | bytes) -> FilterModules:
    disk = new_disk()
    disk.make_dirs("/filters")
    for name, text in texts.items():
        disk.write(f"/filters/{name}.wat", text.encode() if isinstance(text, str) else text)
    return load("/filters", disk, limits)


def module(body: str, extra: str = "", limits: FilterLimits = LIMITS) -> FilterModule:
    found = loaded(limits, it=f"(module {HEAD} {extra} {MATCHES} {body}))")
    assert not found.refused
    return found["it"]


def why_refused(text: str | bytes, limits: FilterLimits = LIMITS) -> str:
    found = loaded(limits, it=text)
    assert "it" not in found
    return found.refused["it"]


def test_a_module_sees_properties_and_body() -> None:
    """It wants those whose properties and body begin with the same byte."""
    first = "(i32.load8_u (i32.const 1024))"
    second = "(i32.load8_u (i32.add (i32.const 1024) (local.get $properties)))"
    sees = module(f"(i32.eq {first} {second})")
    assert sees.matches(b"a\x01v\x02", b"abc") is True
    assert sees.matches(b"b\x01v\x02", b"abc") is False


def test_what_is_not_zero_is_wanted() -> None:
    sizes = module("(i32.sub (local.get $properties) (local.get $body))")
    assert sizes.matches(b"a\x01b\x02", b"1234") is False
    assert sizes.matches(b"a\x01b\x02", b"123") is True
    assert sizes.matches(b"", b"") is False


@pytest.mark.parametrize(
    ("properties", "wanted"),
    [
        (b"region\x01EU\x02", True),
        (b"TAGS\x01paid\x02region\x01EU\x02UNIQ_KEY\x017F\x02", True),
        (b"TAGS\x01paid\x02", False),
        (b"region\x01US\x02", False),
        (b"region\x01EUR\x02", False),
        (b"my_region\x01EU\x02", False),
        (b"", False),
    ],
)
def test_the_example_for_a_property(properties: bytes, wanted: bool) -> None:
    found = loaded(region_eu=(EXAMPLES / "region_eu.wat").read_bytes())
    assert found["region_eu"].matches(properties, b"body") is wanted


def test_the_example_for_large_bodies() -> None:
    found = loaded(large_body=(EXAMPLES / "large_body.wat").read_bytes())
    assert found["large_body"].matches(b"a\x01b\x02", b"x" * 1023) is False
    assert found["large_body"].matches(b"a\x01b\x02", b"x" * 1024) is True


def test_a_message_that_needs_more_memory_than_the_module_has_gets_it() -> None:
    last = "(i32.load8_u (i32.add (i32.const 1023) (i32.add (local.get $properties) (local.get $body))))"
    ends = module(f"(i32.eq {last} (i32.const 33))")
    assert ends.matches(b"", b"x" * 300_000 + b"!") is True
    assert ends.matches(b"", b"x" * 300_000 + b"?") is False


# --- hostile ones ----------------------------------------------------------------------------------------


def test_an_endless_loop_ends_when_its_fuel_does() -> None:
    endless = module("(loop br 0) i32.const 1")
    for _ in range(3):
        with pytest.raises(FilterFailed, match=r"the filter module it failed: .*fuel"):
            endless.matches(b"", b"x")


def test_the_fuel_is_for_each_message_not_for_all() -> None:
    """Each takes more than half of it."""
    count = "(local $i i32) (loop $next (local.set $i (i32.add (local.get $i) (i32.const 1)))"
    count += " (br_if $next (i32.lt_u (local.get $i) (i32.const 10000)))) (i32.const 1)"
    busy = module(count)
    assert all(busy.matches(b"", b"x") for _ in range(20))


def test_a_module_that_wants_4_gib_gets_minus_one_and_no_memory() -> None:
    greedy = module("(i32.eq (memory.grow (i32.const 65535)) (i32.const -1))")
    assert greedy.matches(b"", b"x") is True


def test_a_module_that_begins_with_too_much_memory_is_refused() -> None:
    assert "memory" in why_refused(f"(module {head(pages=65536)} {MATCHES} i32.const 1))")


def test_deep_recursion_is_ended_and_the_next_message_is_filtered() -> None:
    deep = "(func $down (param i32) (result i32) (i32.add (call $down (local.get 0)) (i32.const 1)))"
    body = "(if (result i32) (local.get $body) (then (call $down (i32.const 0))) (else (i32.const 1)))"
    recursive = module(body, deep, FilterLimits(fuel=1_000_000_000))
    with pytest.raises(FilterFailed, match="stack"):
        recursive.matches(b"", b"x")
    assert recursive.matches(b"", b"") is True


def test_a_crash_forgets_what_the_module_had_in_memory() -> None:
    """It counts its calls at address 0, and breaks on the third."""
    count = "(i32.store (i32.const 0) (i32.add (i32.load (i32.const 0)) (i32.const 1)))"
    body = f"{count} (if (i32.ge_u (i32.load (i32.const 0)) (i32.const 3)) (then unreachable)) (i32.const 1)"
    fragile = module(body)
    assert fragile.matches(b"", b"x")
    assert fragile.matches(b"", b"x")
    with pytest.raises(FilterFailed):
        fragile.matches(b"", b"x")
    assert fragile.matches(b"", b"x")


def test_a_message_that_does_not_fit_is_an_error_not_a_crash() -> None:
    any_message = module("(i32.const 1)")
    with pytest.raises(FilterFailed):
        any_message.matches(b"", bytes(LIMITS.memory_bytes))
    assert any_message.matches(b"", b"small")


@pytest.mark.parametrize("address", [-1, -(2**31), 2**31 - 1])
def test_an_input_that_is_nowhere_is_an_error_not_a_crash(address: int) -> None:
    found = loaded(it=f"(module {head(address=address)} {MATCHES} i32.const 1))")
    with pytest.raises(FilterFailed):
        found["it"].matches(b"", b"x")


def test_a_start_function_has_no_more_fuel_than_a_message() -> None:
    assert "fuel" in why_refused(f"(module {HEAD} {MATCHES} i32.const 1) (func $s (loop br 0)) (start $s))")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("(module", "expected"),
        (b"\0asm\x01\0\0\0\xff\xff", "malformed"),
        (b"\xff\xfe\x00", "neither a WebAssembly module nor the text of one"),
        (b"\0\0\0\0", "unexpected"),
        ("", "expected at least one"),
        (f"(module {HEAD})", "must export a function named matches"),
        (
            f'(module {HEAD} (func (export "matches") (result i32) i32.const 1))',
            "must export a function named matches",
        ),
        (
            f'(module (memory (export "memory") 1) {MATCHES} i32.const 1))',
            "must export a constant named input",
        ),
        (
            f'(module (global (export "input") i32 (i32.const 0)) {MATCHES} i32.const 1))',
            "must export a memory",
        ),
        (f'(module (import "wasi" "f" (func)) {HEAD} {MATCHES} i32.const 1))', "must have no imports, got 1"),
        (f"(module {HEAD} {MATCHES} i64.const 1))", "type mismatch"),
    ],
)
def test_what_is_no_filter_is_refused_with_a_reason(text: str | bytes, reason: str) -> None:
    assert reason in why_refused(text)


def test_a_module_that_is_too_large_is_not_even_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filter_modules, "MAX_MODULE_BYTES", 100)
    assert "at most 100 bytes" in why_refused(f"(module {HEAD} {MATCHES} i32.const 1)) ;; {'x' * 100}")


def test_the_good_ones_of_a_directory_work_beside_the_bad() -> None:
    found = loaded(good=f"(module {HEAD} {MATCHES} i32.const 1))", bad="(module")
    assert list(found) == ["good"]
    assert list(found.refused) == ["bad"]


def test_without_wasmtime_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wasmtime", None)
    with pytest.raises(FiltersNotInstalled, match=r"pip install 'turbopump\[filters\]'"):
        loaded()
