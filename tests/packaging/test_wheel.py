"""The wheel, as a user gets it: built, installed into an empty environment, started, used, stopped. Once
built with a compiler, where there is one, and once without.
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOUND_BY_SPARK = ("pyspark_rocketmq", "pyspark_rocketmq_delta", "pyspark_rocketmq_log")  # by their prefix

WITH, WITHOUT = "with a compiler", "without a compiler"
HAS_COMPILER = shutil.which(shlex.split(sysconfig.get_config_var("LDSHARED") or "cc")[0]) is not None


@pytest.fixture(scope="module", params=[WITH, WITHOUT])
def wheel(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if request.param == WITH and not HAS_COMPILER:
        pytest.skip("there is no compiler here")
    return build(tmp_path_factory.mktemp("wheel"), {"CC": "/nowhere/cc"} if request.param == WITHOUT else {})


def build(into: Path, environment: dict[str, str]) -> Path:
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--wheel-dir", str(into), str(ROOT)]
    built = subprocess.run(command, capture_output=True, text=True, env=os.environ | environment)
    if built.returncode and not os.environ.get("CI"):
        pytest.skip(f"no wheel could be built, is there a package index? {built.stderr[-300:]}")
    assert built.returncode == 0, built.stderr
    (found,) = into.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of commands of an environment that holds the wheel and its dependencies, nothing else."""
    home = tmp_path_factory.mktemp("clean")
    venv.create(home, with_pip=True)
    programs = home / "bin"
    subprocess.run([programs / "python", "-m", "pip", "install", "-q", str(wheel)], check=True, cwd=home)
    return programs


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "turbopump/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    own = [name for name in names if ".dist-info/" not in name and ".data/scripts/" not in name]
    assert {name.split("/")[0] for name in own} == {"turbopump", *FOUND_BY_SPARK}


def test_apaches_commands_are_scripts_for_both_shell_and_python(wheel: Path) -> None:
    """Books write `sh bin/mqnamesrv`."""
    files = zipfile.ZipFile(wheel)
    scripts = {name.rpartition("/")[2]: name for name in files.namelist() if ".data/scripts/" in name}
    assert set(scripts) == {path.name for path in (ROOT / "packaging/bin").iterdir()}
    for name in scripts.values():
        assert files.read(name).startswith(b"#!/bin/sh\n")


def test_pytest_finds_the_fixtures(wheel: Path) -> None:
    files = zipfile.ZipFile(wheel)
    (table,) = (name for name in files.namelist() if name.endswith(".dist-info/entry_points.txt"))
    assert "[pytest11]\nturbopump = turbopump.testing.plugin" in files.read(table).decode()


def test_the_compiled_send_path_is_in_the_wheel_of_this_machine_alone(
    wheel: Path, request: pytest.FixtureRequest
) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    compiled = sorted(name for name in names if name.startswith("turbopump/compiled/_twins"))
    if request.node.callspec.params["wheel"] == WITHOUT:
        assert wheel.name.endswith("-py3-none-any.whl")
        assert compiled == ["turbopump/compiled/_twins.pyi"]
    else:
        assert not wheel.name.endswith("-any.whl")
        suffix = sysconfig.get_config_var("EXT_SUFFIX")
        assert compiled == [f"turbopump/compiled/_twins{suffix}", "turbopump/compiled/_twins.pyi"]


def test_a_wheel_can_be_pure_on_purpose(tmp_path: Path) -> None:
    assert build(tmp_path, {"TURBOPUMP_PURE": "1"}).name.endswith("-py3-none-any.whl")


def test_the_core_needs_msgspec_alone(programs: Path) -> None:
    listed = subprocess.run(
        [programs / "python", "-m", "pip", "list", "--format=freeze"],
        capture_output=True,
        text=True,
        check=True,
    )
    names = {line.split("==")[0] for line in listed.stdout.split()}
    assert names - {"pip", "setuptools", "wheel"} == {"turbopump", "msgspec"}


def test_an_installed_wheel_starts_takes_a_message_and_stops(programs: Path, tmp_path: Path) -> None:
    environment = {"PATH": f"{programs}:/usr/bin:/bin", "HOME": str(tmp_path)}
    up = subprocess.Popen(
        [programs / "turbopump", "up", "--namesrv-port", "0", "--broker-port", "0"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=environment,
    )
    try:
        assert up.stdout is not None
        address = None
        for line in up.stdout:
            if found := re.search(r"name server +(\S+)", line):
                address = found[1]
            if "Ctrl-C" in line:
                break
        assert address is not None
        environment["NAMESRV_ADDR"] = address
        sent = subprocess.run(
            [programs / "turbopump", "send", "hello", "from a wheel"],
            capture_output=True,
            text=True,
            env=environment,
        )
        assert sent.returncode == 0, sent.stderr
        read = subprocess.run(
            [programs / "turbopump", "tail", "hello", "--from", "first", "-n", "1"],
            capture_output=True,
            text=True,
            env=environment,
            timeout=20,
        )
        assert "from a wheel" in read.stdout
        listed = subprocess.run(
            [programs / "mqadmin", "topicList"], capture_output=True, text=True, env=environment
        )
        assert "hello" in listed.stdout.splitlines(), listed.stderr
        up.send_signal(signal.SIGTERM)
        assert up.wait(20) == 0
        assert not (tmp_path / "data" / "store" / "abort").exists()
    finally:
        up.kill()
        up.wait()
