"""`mqadmin` as a process: real sockets, the environment, Ctrl-C, a pipe that closes."""

import json
import signal
import subprocess

import pytest
from tests.integration.cli.conftest import PROGRAMS, Home


@pytest.fixture
def cluster(home: Home) -> Home:
    home.up()
    return home


def test_a_command_finds_the_cluster_by_the_environment(cluster: Home) -> None:
    listed = cluster.run("mqadmin", "clusterList", "--json")
    assert listed.returncode == 0, listed.stderr
    (broker,) = json.loads(listed.stdout)["brokers"]
    assert (broker["brokerName"], broker["active"]) == ("broker-a", True)
    same = cluster.run("turbopump", "admin", "topicList", "-n", cluster.environment["NAMESRV_ADDR"])
    assert "TBW102" in same.stdout.splitlines()


def test_ctrl_c_is_the_ordinary_end_of_a_command_without_one(cluster: Home) -> None:
    for words in (("clusterList", "-i", "60"), ("clusterRT", "-a", "2")):
        running = cluster.start("mqadmin", *words)
        running.wait_for("broker-a")
        assert running.stop(signal.SIGINT) == 0, running.lines
        assert "Traceback" not in "".join(running.lines)


def test_a_reader_that_has_seen_enough_is_no_failure(cluster: Home) -> None:
    shell = f"{PROGRAMS / 'mqadmin'} brokerStatus -c DefaultCluster | head -n 1"
    done = subprocess.run(shell, shell=True, capture_output=True, text=True, env=cluster.environment)
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == 1


def test_wrong_use_and_failure_have_their_status(cluster: Home) -> None:
    wrong = cluster.run("mqadmin", "topicRoute")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr == ("mqadmin: missing: -t (--topic); `mqadmin help topicRoute` shows the options\n")
    failed = cluster.run("mqadmin", "topicRoute", "-t", "nowhere")
    assert failed.returncode == 1
    assert len(failed.stderr.splitlines()) == 1
