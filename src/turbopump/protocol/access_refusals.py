"""Recognizes refusals of access control by their texts, and says what to do about each.

Servers of 5.x answer code 16 for them, as for a topic that may not be written; servers of 4.x code 1 with the
name of a Java class. In: code and remark of an answer. Out: reason and advice, or None for other refusals.
"""

import re

from turbopump.protocol.codes import ResponseCode

OF_4 = "org.apache.rocketmq.acl.common.AclException: "
STACK_FRAME = re.compile(r", [\w.$]+\(\w+\.java:\d+\)$")

UNSIGNED = (
    "this client sends no credentials: give it access_key= and secret_key= (environment: "
    "TURBOPUMP_ACCESS_KEY and TURBOPUMP_SECRET_KEY)"
)
UNKNOWN = (
    "this server does not know the access_key: check it, or create the user there (`mqadmin createUser`, for "
    "4.x updateAclConfig); servers do not tell each other their users"
)
DISABLED = "enable the user: `mqadmin updateUser -u USER -s enable`"
WRONG = "secret_key must be the secret of that access_key at this server, got another one"
FORBIDDEN = "allow it for the user: `mqadmin createAcl` or updateAcl, for 4.x updateAclConfig"
SERVER = "the server has access control without its authenticationMetadataProvider: its operator must set it"

ADVICE: tuple[tuple[str, str], ...] = (
    (r"username cannot be null\.", UNSIGNED),
    (r"No accessKey is configured", UNSIGNED),
    (r"User:.* is not found\.", UNKNOWN),
    (r"No acl config for ", UNKNOWN),
    (r"No PlainAccessResource for ", UNKNOWN),
    (r"User:.* is disabled\.", DISABLED),
    (r"[Cc]heck signature failed", WRONG),
    (r".* has no permission to access ", FORBIDDEN),
    (r"No default permission for ", FORBIDDEN),
    (r"Need admin permission for ", FORBIDDEN),
    (r"Authorization failed\.", FORBIDDEN),
    (r"The authenticationMetadataProvider is not configured", SERVER),
)
"""Beginning of a refusal of Apache's servers or ours → what to do."""


def access_refusal(code: int, remark: str) -> tuple[str, str] | None:
    """Returns reason and advice for a refusal of access control; None for any other answer.

    >>> access_refusal(16, "User:joe is disabled.")
    ('User:joe is disabled.', 'enable the user: `mqadmin updateUser -u USER -s enable`')
    """
    is_of_4 = code == ResponseCode.SYSTEM_ERROR and OF_4 in remark
    if code != ResponseCode.NO_PERMISSION and not is_of_4:
        return None
    reason = STACK_FRAME.sub("", remark[remark.index(OF_4) + len(OF_4) :] if is_of_4 else remark)
    for beginning, advice in ADVICE:
        if re.match(beginning, reason):
            return reason, advice
    return (reason, FORBIDDEN) if is_of_4 else None
