"""The user of a verified client certificate: one of the names in it, by a rule.

In: a certificate as `ssl` gives it. Out: a name, or "" if the certificate has none that is clear. Whether the
certificate may be believed was decided before, in the handshake.
"""

from collections.abc import Mapping
from typing import Any

from turbopump.remoting.tls_settings import UserRule

MAX_USER = 256


def user_of(certificate: Mapping[str, Any] | None, rule: UserRule) -> str:
    """Returns the user's name in a certificate of `ssl.SSLObject.getpeercert`; "" without one.

    Two common names, or a name that could be mistaken for another, are none.
    """
    if not certificate or rule == "none":
        return ""
    if rule != "dns":
        common = [
            value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"
        ]
        if common:
            return _clear(common[0]) if len(common) == 1 else ""
        if rule == "cn":
            return ""
    return _clear(next((value for key, value in certificate.get("subjectAltName", ()) if key == "DNS"), ""))


def _clear(name: str) -> str:
    """Returns the name; "" if it is too long, has blanks at an end or characters that cannot be seen."""
    return name if len(name) <= MAX_USER and name.isprintable() and name == name.strip() else ""
