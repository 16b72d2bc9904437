"""Apache's jars and other clients, fetched by Maven, Go, pip, npm and cargo as configured on this machine.

Everything is kept below one cache directory and made once: jars by `mvn dependency:copy-dependencies`, our
Java programs by `javac` against the jars of one client version, our Go and Rust programs by `go build` and
`cargo build`, packages of Python and Node.js by `pip` and `npm`. What cannot be had is `Missing`, with a
reason.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

HERE = Path(__file__).resolve().parent
CACHE = Path(os.environ.get("TURBOPUMP_INTEROP_CACHE") or HERE.parents[1] / ".cache" / "interop")

SERVERS = ("4.9.7", "5.5.0")
JAVA_CLIENTS = ("4.5.1", "4.9.8", "5.5.0")
TOOLS = ("4.9.8", "5.5.0")
DASHBOARD = "5.3.3"  # the admin library that the Dashboard is built with
CPP_PACKAGE = "rocketmq==0.4.4"  # PyPI: brings librocketmq, and uses it through ctypes
NODE_PACKAGE = "rocketmq-nodejs@1.1.2"
SPRING = "2.3.5"

# Programs of ours that need what a client version does not have yet.
LATER_THAN = {"4.5.1": ("LitePulling.java", "LiteChoosing.java", "Partner.java", "Requesting.java")}
DASHBOARD_ONLY = ("Dashboard.java",)

FETCH_TIMEOUT_S = 600
CARGO_TIMEOUT_S = 1800  # 400 crates
APACHE = "org.apache.rocketmq"

# Netty and the memory-mapped store of the servers reach into these packages; Java since 16 must be told.
OPEN_PACKAGES = ("java.nio", "sun.nio.ch", "jdk.internal.ref", "java.lang")
JAVA_OPTIONS = (
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPEN_PACKAGES),
    *(f"--add-exports=java.base/{package}=ALL-UNNAMED" for package in ("jdk.internal.ref", "sun.nio.ch")),
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",  # the programs live for seconds: a second compiler would only heat the machine
)

POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>interop</groupId>
  <artifactId>classpath</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>{dependencies}</dependencies>
</project>
"""
DEPENDENCY = """
    <dependency>
      <groupId>{group}</groupId>
      <artifactId>{name}</artifactId>
      <version>{version}</version>
      <classifier>{classifier}</classifier>
    </dependency>
"""


class Missing(Exception):
    """A tool or an artifact that this machine does not give us."""


@dataclass(frozen=True)
class Artifact:
    """One artifact of a Maven repository; `classifier` names another jar of it than the main one."""

    group: str
    name: str
    version: str
    classifier: str = ""

    def as_dependency(self) -> str:
        return DEPENDENCY.format(**asdict(self))


ASSERTIONS = Artifact(
    "org.assertj", "assertj-core", "3.22.0"
)  # which the test module uses and does not bring


def server_jars(version: str) -> str:
    return _jars("server", version, ("rocketmq-namesrv", "rocketmq-broker"))


def client_jars(version: str) -> str:
    return _jars("client", version, ("rocketmq-client",))


def acl_jars(version: str) -> str:
    """What signs; since 5.3.3 it is part of the client."""
    return _jars("acl", version, ("rocketmq-acl",))


def tools_jars(version: str) -> str:
    return _jars("tools", version, ("rocketmq-tools",))


def jar(group: str, name: str, version: str) -> Path:
    """One artifact that is not Apache's."""
    found = _jars(name, version, (name,), group)
    return Path(found).parent / f"{name}-{version}.jar"


def client_programs(version: str) -> str:
    """The class path that runs `Scenarios` and `Store` with the Java client of that version, and may sign."""
    classes = _programs("client", version, client_jars(version), LATER_THAN.get(version, ()))
    return f"{classes}{os.pathsep}{acl_jars(version)}" if version.startswith("4") else classes


def tools_programs(version: str) -> str:
    """The class path that runs `Console` with that version, or `Dashboard` with the Dashboard's."""
    without = () if version == DASHBOARD else DASHBOARD_ONLY
    return _programs("tools", version, tools_jars(version), without, folder="admin")


def push_programs(version: str) -> str:
    """The class path that runs `Consumers` and `Worker` with the Java client of that version."""
    return _programs("push", version, client_jars(version), LATER_THAN.get(version, ()), folder="push")


def transaction_programs(version: str) -> str:
    """The class path that runs `Transactor`, before 5.x also `OldTransactor`, with that Java client."""
    without = ("OldTransactor.java",) if version.startswith("5") else ()
    return _programs("transactions", version, client_jars(version), without, folder="transactions")


def timer_programs(version: str) -> str:
    """The class path that runs `Timed` with the Java client of that version."""
    return _programs("timers", version, client_jars(version), (), folder="timers")


def strategy_programs(version: str) -> str:
    """The class path that runs `Strategies`."""
    return _programs("strategies", version, client_jars(version), (), folder="strategies")


def filter_programs(version: str) -> str:
    """The class path that runs `Filters` with the filter classes of that server."""
    return _programs("filters", version, server_jars(version), (), folder="filters")


def choosing_programs(version: str) -> str:
    """The class path that runs `Choosing` with the Java client of that version."""
    without = LATER_THAN.get(version, ())
    return _programs("choosing", version, client_jars(version), without, folder="choosing")


def kinds_programs(version: str) -> str:
    """The class path that runs `Kinds` with the Java client of that version."""
    return _programs("kinds", version, client_jars(version), (), folder="kinds")


def first_programs(version: str) -> str:
    """The class path that runs `FirstMessages` and `EarlyCommit` with the Java client of that version."""
    return _programs("first", version, client_jars(version), (), folder="first")


def access_programs(version: str) -> str:
    """The class path that runs `Signing` with the Java client of that version."""
    return _programs("access", version, tools_jars(version), (), folder="access")


def integration_tests(version: str) -> str:
    """The class path that runs the tests of TLS in Apache's `test` module against running servers."""
    wanted = (
        Artifact(APACHE, "rocketmq-test", version),
        Artifact(APACHE, "rocketmq-test", version, "tests"),
        ASSERTIONS,
    )
    jars = _jars_of("integration", version, wanted, f"Apache's integration tests {version}")
    return _programs("integration", version, jars, (), folder="integration")


@cache
def _programs(kind: str, version: str, jars: str, without: tuple[str, ...], folder: str = ".") -> str:
    """The programs of one folder; what they use of the upper one is compiled with them."""
    what = f"Java {kind} {version}"
    above = HERE / "java"
    sources = [path for path in sorted((above / folder).glob("*.java")) if path.name not in without]
    used = sorted(above.glob("*.java"))

    def compile_into(directory: Path) -> None:
        compiler = tool("javac", what)
        options = ["-nowarn", "-Xlint:none", "-encoding", "UTF-8", "-cp", jars, "-d", str(directory)]
        _run([compiler, *options, "-sourcepath", str(above), *map(str, sources)])

    classes = _made_once(f"{kind}-classes-{version}-{_fingerprint({*sources, *used})}", compile_into)
    return f"{classes}{os.pathsep}{jars}"


@cache
def go_program() -> Path:
    what = "Go client"
    source = HERE / "go"
    files = sorted(path for path in source.iterdir() if path.is_file())

    def build_into(directory: Path) -> None:
        go = tool("go", what)
        _fetch([go, "mod", "download"], what, cwd=source)
        _run([go, "build", "-mod=readonly", "-o", str(directory / "scenarios"), "."], cwd=source)

    return _made_once(f"go-{_fingerprint(files)}", build_into) / "scenarios"


def spring_programs() -> str:
    """The class path that runs `SpringClient`."""
    jars = _jars("spring", SPRING, ("rocketmq-spring-boot-starter",))
    return _programs("spring", SPRING, jars, (), folder="spring")


@cache
def cpp_package() -> Path:
    """The directory that Python finds the C++ client library's package in."""
    what = f"C++ client ({CPP_PACKAGE})"

    def install_into(directory: Path) -> None:
        options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--target", str(directory)]
        _fetch([sys.executable, "-m", "pip", "install", *options, CPP_PACKAGE], what)

    return _made_once(f"pypi-{CPP_PACKAGE.replace('==', '-')}", install_into)


@cache
def node_package() -> Path:
    """The `node_modules` with the Node.js client; its addon is in the package, so no script has to run."""
    what = f"Node.js client ({NODE_PACKAGE})"

    def install_into(directory: Path) -> None:
        options = ["--ignore-scripts", "--no-audit", "--no-fund", "--prefix", str(directory)]
        _fetch([tool("npm", what), "install", *options, NODE_PACKAGE], what)

    return _made_once(f"npm-{NODE_PACKAGE.replace('@', '-')}", install_into) / "node_modules"


@cache
def rust_program() -> Path:
    what = "Rust client"
    source = HERE / "rust"
    files = sorted(path for path in source.rglob("*") if path.is_file())

    def build_into(directory: Path) -> None:
        cargo, target = tool("cargo", what), CACHE / "rust-target"  # which spares the crates the next time
        options = ["--quiet", "--locked", "--manifest-path", str(source / "Cargo.toml")]
        _fetch([cargo, "fetch", *options], what)
        _run([cargo, "build", *options, "--target-dir", str(target)], timeout_s=CARGO_TIMEOUT_S)
        shutil.copy2(target / "debug" / "client", directory / "client")

    return _made_once(f"rust-{_fingerprint(files)}", build_into) / "client"


def unpacked_packages(kind: str, names: tuple[str, ...], apt: str, dpkg: str, what: str) -> Path:
    """Debian's packages, unpacked into a directory of the cache; nothing is installed."""

    def unpack_into(directory: Path) -> None:
        packed = directory / "packed"
        packed.mkdir()
        _fetch([apt, "--quiet", "download", *names], what, cwd=packed)
        for package in sorted(packed.glob("*.deb")):
            _run([dpkg, "-x", str(package), str(directory)])
        shutil.rmtree(packed)

    return _made_once(f"{kind}-{_fingerprint_of(names)}", unpack_into)


def tool(name: str, what: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise Missing(f"{what}: {name} not found")
    return path


def _jars(kind: str, version: str, names: tuple[str, ...], group: str = APACHE) -> str:
    what = f"Java {kind} {version}" if group == APACHE else f"{kind} {version}"
    return _jars_of(kind, version, tuple(Artifact(group, name, version) for name in names), what)


@cache
def _jars_of(kind: str, version: str, wanted: tuple[Artifact, ...], what: str) -> str:
    """The artifacts, and what they need to run."""

    def copy_into(directory: Path) -> None:
        maven = tool("mvn", what)
        pom = directory / "pom.xml"
        pom.write_text(POM.format(dependencies="".join(one.as_dependency() for one in wanted)))
        options = ["-DincludeScope=runtime", f"-DoutputDirectory={directory / 'lib'}"]
        _fetch([maven, "-B", "-q", "-f", str(pom), "dependency:copy-dependencies", *options], what)

    return str(_made_once(f"{kind}-{version}", copy_into) / "lib" / "*")


def _made_once(name: str, make: Callable[[Path], None]) -> Path:
    """A directory of the cache; it appears whole or not at all, also when two runs want it at once."""
    target = CACHE / name
    if target.is_dir():
        return target
    CACHE.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f"{name}.", dir=CACHE))
    try:
        make(draft)
        try:
            draft.rename(target)
        except OSError:
            if not target.is_dir():  # otherwise another run was faster
                raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return target


def _fingerprint(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def _fingerprint_of(words: tuple[str, ...]) -> str:
    return hashlib.sha256(" ".join(words).encode()).hexdigest()[:12]


def _fetch(command: list[str], what: str, cwd: Path | None = None) -> None:
    """Runs a command that downloads; one at a time, since Maven's local repository is not safe for two."""
    try:
        with open(CACHE / "fetching", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            _run(command, cwd)
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        raise Missing(f"{what}: {error}") from None


def _run(command: list[str], cwd: Path | None = None, timeout_s: float = FETCH_TIMEOUT_S) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=timeout_s)
    if done.returncode != 0:
        raise RuntimeError(f"{Path(command[0]).name} failed:\n{(done.stdout + done.stderr)[-4000:]}")
