import pytest

from turbopump.broker.address import advertised, primary_local_address


def unasked() -> str | None:
    raise AssertionError("the machine need not be asked")


def test_what_is_configured_is_advertised() -> None:
    found = advertised("broker.example.org", "0.0.0.0", unasked)
    assert found.address == "broker.example.org"
    assert found.warning == ""


def test_a_broker_that_listens_on_one_address_advertises_it() -> None:
    assert advertised("", "10.1.2.3", unasked).address == "10.1.2.3"


@pytest.mark.parametrize("bound_to", ["", "0.0.0.0", "::"])
def test_otherwise_the_primary_address_is_advertised(bound_to: str) -> None:
    found = advertised("", bound_to, lambda: "192.168.0.7")
    assert found.address == "192.168.0.7"
    assert found.warning == ""


def test_a_machine_without_an_address_falls_back_to_itself_with_a_warning() -> None:
    found = advertised("", "0.0.0.0", lambda: None)
    assert found.address == "127.0.0.1"
    assert "other machines cannot" in found.warning


@pytest.mark.parametrize("address", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_an_address_that_only_this_machine_can_use_is_warned_about(address: str) -> None:
    assert "brokerIP1 says so" in advertised(address, "0.0.0.0", unasked).warning


def test_asking_the_machine_gives_an_address_or_nothing() -> None:
    assert primary_local_address() != "0.0.0.0"
