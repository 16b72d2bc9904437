"""Builds and runs the load generator, a Go program, and reads its output into a `Sample`."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CACHE = ROOT / ".cache" / "bench"
BINARY = CACHE / "loadgen"


class LoadFailed(Exception):
    """The generator could not put its load on the server."""


@dataclass(frozen=True)
class Sample:
    """One run, reduced to what the tables use; `raw` is the whole output of the generator."""

    messages: int
    errors: int
    rate: float
    cpu_us: float
    per_cpu_second: float
    server_cores: float
    evictions: float  # involuntary context switches of the server per 1000 messages
    p50_us: float
    generator_cores: float
    other_cores: float
    load_average: float
    rss_mib: float
    anonymous_mib: float
    raw: dict[str, Any]


def build() -> None:
    go = shutil.which("go")
    if go is None:
        raise LoadFailed("the load generator is a Go program; install Go and put `go` on the PATH")
    CACHE.mkdir(parents=True, exist_ok=True)
    command = [go, "build", "-o", str(BINARY), "."]
    done = subprocess.run(
        command, cwd=Path(__file__).with_name("loadgen"), capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise LoadFailed(f"go build failed:\n{done.stderr}")


def run(mode: str, address: str, pids: Sequence[int] = (), **options: object) -> Sample:
    """Runs the generator. `options` are its flags: `in_flight=64` for `-in-flight=64`."""
    given = {"address": address, "pid": ",".join(map(str, pids)), **options}
    flags = [f"-{name.replace('_', '-')}={value}" for name, value in given.items()]
    done = subprocess.run([BINARY, mode, *flags], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LoadFailed(done.stderr.strip())
    return sample(json.loads(done.stdout))


def sample(raw: dict[str, Any]) -> Sample:
    server = raw.get("server") or {}
    memory = server.get("memory") or {}
    machine = raw["machine"]
    return Sample(
        messages=raw["messages"],
        errors=raw["errors"],
        rate=raw["messages_per_second"],
        cpu_us=server.get("cpu_us_per_message", 0.0),
        per_cpu_second=server.get("messages_per_cpu_second", 0.0),
        server_cores=server.get("cores", 0.0),
        evictions=server.get("evictions_per_1000_messages", 0.0),
        p50_us=raw["latency"]["p50_us"],
        generator_cores=machine["generator_cores"],
        other_cores=machine["other_cores"],
        load_average=machine["load_average"],
        rss_mib=memory.get("rss_kib", 0) / 1024,
        anonymous_mib=memory.get("anonymous_kib", 0) / 1024,
        raw=raw,
    )


def first(namesrv: str, broker: str, timeout_s: float = 60.0) -> subprocess.Popen[str]:
    """Starts a client that retries until its first message is acknowledged; `acknowledged_ns` reads when."""
    flags = ["-namesrv", namesrv, "-address", broker, "-timeout", f"{timeout_s}s"]
    return subprocess.Popen(
        [BINARY, "first", *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def acknowledged_ns(client: subprocess.Popen[str]) -> int:
    output, errors = client.communicate()
    if client.returncode != 0:
        raise LoadFailed(errors.strip())
    return int(json.loads(output)["acknowledged_unix_ns"])
