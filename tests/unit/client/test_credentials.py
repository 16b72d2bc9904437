"""Where a client's credentials come from, and what is said of half or unreadable ones."""

from pathlib import Path

import pytest

from turbopump.auth.signature import Credentials
from turbopump.client.credentials import credentials_of
from turbopump.client.errors import InvalidArgument
from turbopump.client.settings import ClientSettings, made

ENVIRONMENT = {"TURBOPUMP_ACCESS_KEY": "env", "TURBOPUMP_SECRET_KEY": "env-secret"}


def settings(**given: str) -> ClientSettings:
    return made(ClientSettings, given)


def test_without_any_credentials_a_client_does_not_sign() -> None:
    assert credentials_of(settings(), {}) is None


def test_settings_come_first_then_the_file_then_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("# of Apache\nAccessKey=file\nSecretKey = file-secret\nSecurityToken=t\n")
    given = settings(access_key="me", secret_key="mine", credentials_file=str(file))
    assert credentials_of(given, ENVIRONMENT) == Credentials("me", "mine")
    given = settings(credentials_file=str(file))
    assert credentials_of(given, ENVIRONMENT) == Credentials("file", "file-secret", "t")
    assert credentials_of(settings(), ENVIRONMENT) == Credentials("env", "env-secret")
    named = {"TURBOPUMP_CREDENTIALS_FILE": str(file)}
    assert credentials_of(settings(), ENVIRONMENT | named) == Credentials("env", "env-secret")
    assert credentials_of(settings(), named) == Credentials("file", "file-secret", "t")


def test_a_key_file_may_have_the_spelling_of_apaches_tools(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("accessKey=RocketMQ\nsecretKey=12345678\n")
    assert credentials_of(settings(credentials_file=str(file)), {}) == Credentials("RocketMQ", "12345678")


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ({"access_key": "me"}, "secret_key is missing"),
        ({"secret_key": "Geheim-1"}, "access_key is missing"),
        ({"security_token": "Geheim-1"}, "access_key is missing"),
    ],
)
def test_half_of_the_credentials_is_refused(given: dict[str, str], missing: str) -> None:
    with pytest.raises(InvalidArgument, match="access_key and secret_key must be given together") as caught:
        credentials_of(settings(**given), ENVIRONMENT)
    assert missing in str(caught.value)
    assert "Geheim" not in str(caught.value)


def test_half_of_the_environment_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="TURBOPUMP_ACCESS_KEY is missing"):
        credentials_of(settings(), {"TURBOPUMP_SECRET_KEY": "Geheim-1"})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("AccessKey=me\n", "AccessKey and SecretKey in .*: SecretKey is missing"),
        ("SecretKey=Geheim-1\n", "AccessKey is missing"),
        ("AccessKey=me\nSecretKey=Geheim-1\\uXYZ1\n", "line 2: not a file of properties"),
    ],
)
def test_a_key_file_that_cannot_be_used_is_named_and_its_secret_is_not(
    tmp_path: Path, text: str, words: str
) -> None:
    file = tmp_path / "key"
    file.write_text(text)
    with pytest.raises(InvalidArgument, match=words) as caught:
        credentials_of(settings(credentials_file=str(file)), {})
    assert "Geheim" not in str(caught.value)
    assert "XYZ1" not in str(caught.value)
    assert str(file) in str(caught.value)


def test_a_missing_key_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="credentials_file must name a readable file"):
        credentials_of(settings(credentials_file=str(tmp_path / "none")), {})


def test_a_secret_that_is_not_text_is_refused_without_showing_it() -> None:
    with pytest.raises(InvalidArgument, match="must be text in UTF-8") as caught:
        credentials_of(settings(access_key="me", secret_key="Geheim\udcff"), {})
    assert "Geheim" not in str(caught.value)
