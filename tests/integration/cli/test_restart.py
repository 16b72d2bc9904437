"""A reader that stays while its servers die and come back."""

from tests.integration.cli.conftest import Home


def test_tail_goes_on_after_both_servers_were_killed_and_started_again(home: Home) -> None:
    up = home.up()
    ports = ("--namesrv-port", home.environment["NAMESRV_ADDR"].rpartition(":")[2])
    ports += ("--broker-port", up.lines[3].rpartition(":")[2].strip())
    assert home.run("turbopump", "send", "t", "before").returncode == 0
    tail = home.start("turbopump", "tail", "t", "--from", "first", "-n", "2")
    tail.wait_for(r"\| before$")
    up.process.kill()
    tail.wait_for("does not answer, trying again")
    home.start("turbopump", "up", *ports).wait_for("Ctrl-C")
    assert home.run("turbopump", "send", "t", "after").returncode == 0
    tail.wait_for(r"\| after$")
    assert tail.process.wait(10) == 0
