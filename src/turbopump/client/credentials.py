"""Credentials of a client: from its settings, a key file of Apache's, or the environment.

In: settings, in which arguments, `turbopump.configure()` and the configuration file are merged already. Out:
one pair of credentials, or None for a client that does not sign. Name and secret come from the same place.
A secret is in no error.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from turbopump.auth.signature import Credentials
from turbopump.auth.signer import Signer
from turbopump.client.errors import InvalidArgument
from turbopump.client.settings import ClientSettings
from turbopump.protocol.conf import ConfigError, parse_properties

ACCESS_KEY_VARIABLE = "TURBOPUMP_ACCESS_KEY"
SECRET_KEY_VARIABLE = "TURBOPUMP_SECRET_KEY"
SECURITY_TOKEN_VARIABLE = "TURBOPUMP_SECURITY_TOKEN"
FILE_VARIABLE = "TURBOPUMP_CREDENTIALS_FILE"
VARIABLES = (ACCESS_KEY_VARIABLE, SECRET_KEY_VARIABLE, SECURITY_TOKEN_VARIABLE)


def credentials_of(
    settings: ClientSettings, environment: Mapping[str, str] | None = None
) -> Credentials | None:
    """Returns the credentials of a client, or None. Raises InvalidArgument for half of them, or a bad file.

    The first of these that is given counts: `access_key` and `secret_key`, `credentials_file`, the variables
    TURBOPUMP_ACCESS_KEY and TURBOPUMP_SECRET_KEY, the file that TURBOPUMP_CREDENTIALS_FILE names.
    """
    known = os.environ if environment is None else environment
    given = (settings.access_key, settings.secret_key, settings.security_token)
    if any(given):
        return _checked(given, "access_key and secret_key")
    if settings.credentials_file:
        return read_credentials(settings.credentials_file)
    of_variables = tuple(known.get(name, "") for name in VARIABLES)
    if any(of_variables):
        return _checked(of_variables, f"{ACCESS_KEY_VARIABLE} and {SECRET_KEY_VARIABLE}")
    if known.get(FILE_VARIABLE):
        return read_credentials(known[FILE_VARIABLE])
    return None


def signer_of(settings: ClientSettings) -> Signer | None:
    """Returns what signs the requests of a client with these settings; None: nothing does."""
    credentials = credentials_of(settings)
    return None if credentials is None else Signer(credentials)


def read_credentials(path: str) -> Credentials:
    """Reads a file of properties with AccessKey, SecretKey and perhaps SecurityToken, in any case.

    Raises InvalidArgument.
    """
    where = Path(path).expanduser()
    try:
        data = where.read_bytes()
    except OSError as error:
        raise InvalidArgument(
            f"credentials_file must name a readable file, got {where}: {error.strerror or error}"
        ) from None
    return credentials_in(data, str(where))


def credentials_in(data: bytes, where: str) -> Credentials:
    """Returns the credentials in the bytes of a file of properties. Raises InvalidArgument."""
    try:
        entries = parse_properties(data)
    except ConfigError as error:  # its text may have a part of the secret
        line = f", line {error.line}" if error.line else ""
        raise InvalidArgument(f"{where}{line}: not a file of properties such as `AccessKey=name`") from None
    found = {entry.key.lower(): entry.value.strip() for entry in entries}
    given = tuple(found.get(name, "") for name in ("accesskey", "secretkey", "securitytoken"))
    return _checked(given, f"AccessKey and SecretKey in {where}")


def _checked(given: tuple[str, ...], names: str) -> Credentials:
    """Returns name, secret and token as credentials. Raises InvalidArgument for what is missing."""
    access_key, secret_key, security_token = given
    if not access_key or not secret_key:
        missing = names.split(" and ")[1 if access_key else 0].partition(" in ")[0]
        raise InvalidArgument(f"{names} must be given together: {missing} is missing")
    try:
        f"{access_key}{secret_key}{security_token}".encode()
    except UnicodeEncodeError:
        raise InvalidArgument(f"{names} must be text in UTF-8") from None
    return Credentials(access_key, secret_key, security_token)
