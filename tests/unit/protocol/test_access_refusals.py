"""Refusals of access control are recognized by the texts of all servers, and say what to do."""

import pickle

import pytest

from turbopump.protocol.access_refusals import DISABLED, FORBIDDEN, SERVER, UNKNOWN, UNSIGNED, WRONG
from turbopump.protocol.errors import AccessRefused, NoPermission, SystemFailure, refusal

OF_4 = (
    "org.apache.rocketmq.acl.common.AclException: {}, "
    "org.apache.rocketmq.acl.plain.PlainPermissionManager.validate(PlainPermissionManager.java:663)"
)


@pytest.mark.parametrize(
    ("remark", "advice"),
    [
        ("username cannot be null.", UNSIGNED),
        ("User:joe is not found.", UNKNOWN),
        ("User:joe is disabled.", DISABLED),
        ("check signature failed.", WRONG),
        ("User:joe has no permission to access Topic:T from 10.0.0.1, no matched policies.", FORBIDDEN),
        ("User:joe has no permission to access Topic:T from 10.0.0.1, the decision is deny.", FORBIDDEN),
        ("Authorization failed. Please verify your access rights and try again.", FORBIDDEN),
        ("The authenticationMetadataProvider is not configured", SERVER),
        ("No accessKey is configured", UNSIGNED),
    ],
)
def test_a_refusal_of_5_says_what_to_do(remark: str, advice: str) -> None:
    error = refusal(16, remark)
    assert isinstance(error, AccessRefused)
    assert isinstance(error, NoPermission)
    assert (error.code, error.remark, error.advice) == (16, remark, advice)
    assert str(error) == f"NO_PERMISSION (16): {remark}; {advice}"


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("No accessKey is configured", UNSIGNED),
        ("No acl config for joe", UNKNOWN),
        ("No PlainAccessResource for accessKey=joe", UNKNOWN),
        ("Check signature failed for accessKey=joe", WRONG),
        ("Need admin permission for request code=17, but accessKey=joe is not", FORBIDDEN),
        ("No default permission for topic:T", FORBIDDEN),
        ("something new", FORBIDDEN),
    ],
)
def test_a_refusal_of_4_has_code_1_and_is_shown_without_java_classes(text: str, advice: str) -> None:
    error = refusal(1, OF_4.format(text))
    assert isinstance(error, AccessRefused)
    assert not isinstance(error, SystemFailure)
    assert (error.code, error.reason, error.advice) == (1, text, advice)
    assert "org.apache" not in str(error)
    assert "org.apache" in error.remark


@pytest.mark.parametrize(
    ("code", "remark"),
    [(16, "the broker[10.0.0.1] sending message is forbidden"), (1, "no such group"), (2, OF_4.format("x"))],
)
def test_other_refusals_stay_what_they_were(code: int, remark: str) -> None:
    assert not isinstance(refusal(code, remark), AccessRefused)


def test_a_refusal_can_be_sent_to_another_process() -> None:
    error = refusal(16, "check signature failed.")
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again)) == (AccessRefused, str(error))
