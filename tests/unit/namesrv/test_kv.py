import json
from pathlib import Path

import pytest

from turbopump.namesrv import kv
from turbopump.namesrv.kv import KeyValueTable
from turbopump.protocol.errors import SystemFailure
from turbopump.runtime.disk import SystemDisk


def table(path: Path | str) -> KeyValueTable:
    values = KeyValueTable(SystemDisk(), str(path))
    values.load()
    return values


def test_values_survive_a_restart_in_apaches_file(tmp_path: Path) -> None:
    path = tmp_path / "namesrv" / "kvConfig.json"
    values = table(path)
    values.put("ORDER_TOPIC_CONFIG", "T", "broker-a:4;broker-b:4")
    values.put("ns", "k", "größer")
    values.put("ns", "gone", "x")
    values.delete("ns", "gone")
    assert json.loads(path.read_bytes()) == {
        "configTable": {"ORDER_TOPIC_CONFIG": {"T": "broker-a:4;broker-b:4"}, "ns": {"k": "größer"}}
    }
    again = table(path)
    assert again.get("ns", "k") == "größer"
    assert again.all_of("ORDER_TOPIC_CONFIG") == {"T": "broker-a:4;broker-b:4"}
    assert again.all_of("other") is None


def test_a_missing_value_leaves_a_used_namespace_without_the_key() -> None:
    values = table("")
    values.put("ns", "k", "v")
    values.put("ns", "k", None)
    assert values.get("ns", "k") is None
    assert values.all_of("ns") == {}


def test_a_broken_file_is_replaced_by_its_backup(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    values = table(path)
    values.put("ns", "k", "old")
    values.put("ns", "k", "new")
    path.write_bytes(b'{"configTable":{"ns"')
    assert table(path).get("ns", "k") == "old"
    (tmp_path / "kvConfig.json.bak").write_bytes(b"[]")
    assert table(path).all_of("ns") is None


def test_a_change_that_cannot_be_kept_is_refused_and_undone(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    values = KeyValueTable(SystemDisk(), str(tmp_path / "file" / "kvConfig.json"))
    with pytest.raises(SystemFailure, match="cannot write the key-value table"):
        values.put("ns", "k", "v")
    assert values.all_of("ns") is None


def test_the_table_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv, "MAX_BYTES", len('{"n":{"k":"xxxxxxxxx"}}'))
    values = table("")
    values.put("n", "k", "x" * 9)
    values.put("n", "k", "y" * 9)
    with pytest.raises(SystemFailure, match="table must have at most"):
        values.put("n", "l", "")
    with pytest.raises(SystemFailure, match="table must have at most"):
        values.put("m", "k", None)
    assert values.all_of("n") == {"k": "y" * 9}
    values.delete("n", "k")
    values.put("n", "l", "")


def test_a_namespace_fits_into_one_answer() -> None:
    values = table("")
    values.put("n", "a", "v" * 5_000_000)
    with pytest.raises(SystemFailure, match="namespace must have at most 8388608 bytes"):
        values.put("n", "b", "v" * 5_000_000)
    with pytest.raises(SystemFailure, match="namespace must have at most"):
        values.put("n", "escaped", "\x01" * 1_000_000)
    assert list(values.all_of("n") or {}) == ["a"]
    values.put("m", "a", "v" * 5_000_000)


def test_a_larger_namespace_in_a_file_is_read_and_may_shrink(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "kvConfig.json"
    large = {"a": "x" * 100, "b": "y" * 100}
    path.write_text(json.dumps({"configTable": {"n": large}}))
    monkeypatch.setattr(kv, "MAX_NAMESPACE_BYTES", 50)
    values = table(path)
    assert values.all_of("n") == large
    assert "namespace n has" in caplog.text
    with pytest.raises(SystemFailure, match="namespace must have at most"):
        values.put("n", "c", "")
    values.put("n", "a", "x")
    values.delete("n", "b")
    assert table(path).all_of("n") == {"a": "x"}
