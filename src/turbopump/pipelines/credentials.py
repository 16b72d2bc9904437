"""Credentials of the Spark formats: options of their own, or those of every client, found by the driver.

The driver sends them to its tasks, so that no worker needs an environment or a file of its own. In: options.
Out: settings of a client. Spark hides option values whose names contain `secret`, `token` or `password` in
its plans and pages; here no text has one.
"""

from collections.abc import Iterable, Mapping
from typing import cast

from turbopump.client import discovery
from turbopump.client.credentials import credentials_of
from turbopump.client.errors import InvalidArgument
from turbopump.client.options import ClientOptions
from turbopump.client.settings import ClientSettings, made
from turbopump.pipelines.options import BadOption, FormatOption, FormatOptions, text

CREDENTIALS = (
    FormatOption(
        "accessKey",
        text,
        "",
        aliases=("rocketmq.access_key", "rocketmq.access.key"),
        help="name of the user as which all requests are signed; without it the driver's settings and "
        "environment count (TURBOPUMP_ACCESS_KEY, TURBOPUMP_SECRET_KEY)",
    ),
    FormatOption(
        "secretKey",
        text,
        "",
        aliases=("rocketmq.secret_key", "rocketmq.secret.key"),
        help="secret with which all requests are signed",
        is_secret=True,
    ),
    FormatOption(
        "securityToken",
        text,
        "",
        aliases=("rocketmq.security_token", "rocketmq.security.token"),
        help="token of temporary credentials",
        is_secret=True,
    ),
    FormatOption(
        "credentialsFile",
        text,
        "",
        aliases=("rocketmq.credentials_file", "rocketmq.credentials.file"),
        help="file of properties with AccessKey and SecretKey, at the driver",
    ),
)
SETTINGS = {
    "accessKey": "access_key",
    "secretKey": "secret_key",
    "securityToken": "security_token",
    "credentialsFile": "credentials_file",
}
"""Option → setting of the client."""

TLS_SECRET = "tlskeypassword"
HIDDEN = "(hidden)"


def words_of(options: Iterable[FormatOption], secrets_only: bool = False) -> frozenset[str]:
    """Returns all names of options in lower case, as Spark keeps them."""
    found = [option for option in options if option.is_secret or not secrets_only]
    return frozenset(word.lower() for option in found for word in (option.name, *option.aliases))


SECRET_WORDS = words_of(CREDENTIALS, secrets_only=True) | {TLS_SECRET}
"""Names of options whose values are in no text."""


def found_credentials(options: FormatOptions) -> tuple[tuple[str, str], ...]:
    """Returns the settings that sign a client's requests, empty without credentials. Raises BadOption."""
    given = {name: options[option] for option, name in SETTINGS.items() if options.is_given(option)}
    try:
        settings = made(ClientSettings, given, discovery.defaults())
        credentials = credentials_of(settings)
    except InvalidArgument as error:
        raise BadOption(f"options accessKey and secretKey: {error}") from None
    if credentials is None:
        return ()
    found = {
        "access_key": credentials.access_key,
        "secret_key": credentials.secret_key,
        "security_token": credentials.security_token,
    }
    return tuple((name, value) for name, value in found.items() if value)


def credentials_among(given: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Returns the settings that sign requests, from those of many options. Raises BadOption."""
    words = words_of(CREDENTIALS)
    own = {name: value for name, value in given.items() if name.lower() in words}
    return found_credentials(FormatOptions(CREDENTIALS, own, "rocketmq"))


def signing_options(credentials: Iterable[tuple[str, str]]) -> ClientOptions:
    return cast(ClientOptions, dict(credentials))


def shown(options: Mapping[str, str]) -> dict[str, str]:
    """Returns options for people to read, without the values of secrets."""
    return {name: HIDDEN if name.lower() in SECRET_WORDS else value for name, value in options.items()}
