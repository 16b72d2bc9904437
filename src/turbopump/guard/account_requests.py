"""Handlers of requests about accounts of 4.x (50 to 54), with Apache's texts.

In: requests of administrators: the gate lets no others pass. Out: changed files of accounts, their
versions, and what they say, without secrets. A change that the files could not hold is refused, and nothing
is written.
"""

import logging
import re
from collections.abc import Callable
from typing import Any

import msgspec

from turbopump.auth.accounts import PERMS
from turbopump.guard.account_table import AccountTable, Values
from turbopump.guard.audit import AuditLog
from turbopump.guard.faults import AccessFileFault
from turbopump.guard.link import AccessLink, source_of
from turbopump.protocol.bodies import AclConfig, PlainAccessConfig
from turbopump.protocol.codes import RequestCode as Code
from turbopump.protocol.errors import Refused
from turbopump.protocol.headers.access import (
    DeleteAclConfigRequest,
    GetAclVersionResponse,
    UpdateAclConfigRequest,
    UpdateGlobalWhiteAddrsRequest,
)
from turbopump.remoting.router import Answer, Request, Route, Routes

log = logging.getLogger(__name__)

UPDATE_FAILED, DELETE_FAILED, WHITE_FAILED = 209, 210, 211
"""Codes of failures, which 5.x uses for other things too."""

LONGER_THAN = 6
MAX_QUOTE = 300
LISTS = ("topicPerms", "groupPerms")
PLAIN = ("whiteRemoteAddress", "defaultTopicPerm", "defaultGroupPerm")
OUTSIDE_BRACES = re.compile(r",(?![^{]*\})")


class AccountHandler:
    """Handles requests that show and change accounts and white addresses."""

    def __init__(
        self, table: AccountTable, link: AccessLink, audit: AuditLog, broker: tuple[str, str, str]
    ) -> None:
        """`broker`: its name, its address and its cluster, for the answer about versions."""
        self._table = table
        self._link = link
        self._audit = audit
        self._broker = broker

    def routes(self) -> Routes:
        return {
            Code.UPDATE_AND_CREATE_ACL_CONFIG: Route(UpdateAclConfigRequest, self.update),
            Code.DELETE_ACL_CONFIG: Route(DeleteAclConfigRequest, self.delete),
            Code.GET_BROKER_CLUSTER_ACL_INFO: Route(None, self.versions),
            Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: Route(UpdateGlobalWhiteAddrsRequest, self.update_white),
            Code.GET_BROKER_CLUSTER_ACL_CONFIG: Route(None, self.show),
        }

    async def update(self, request: Request[UpdateAclConfigRequest]) -> Answer:
        """Creates an account, or changes the fields that are given; the others stay as they are."""
        header, failed = request.header, UPDATE_FAILED
        key = (header.accessKey or "").strip()
        if len(key) <= LONGER_THAN or len((header.secretKey or "").strip()) <= LONGER_THAN:
            raise Refused(
                failed,
                f"The accessKey={key[:MAX_QUOTE]} and secretKey cannot be null and length "
                "should longer than 6",
            )
        given = _given(header)
        for row in (*given.get("topicPerms", ()), *given.get("groupPerms", ())):
            _check_perm(row)

        def change(values: Values) -> str:
            path, row = _find(values, key)
            if row is None:
                path = next(iter(values))
                rows = values[path].setdefault("accounts", None) or []
                values[path]["accounts"] = [*rows, given]
            else:
                row.update(given)
            return path

        return await self._change(request, change, failed, f"account {key} updated")

    async def delete(self, request: Request[DeleteAclConfigRequest]) -> Answer:
        key, failed = request.header.accessKey or "null", DELETE_FAILED
        text = f"The accesskey[{key}] corresponding to accessConfig has been deleted failed."

        def change(values: Values) -> str:
            path, row = _find(values, key)
            if row is None:
                raise Refused(failed, text)
            values[path]["accounts"] = [one for one in values[path]["accounts"] if one is not row]
            return path

        return await self._change(request, change, failed, f"account {key} deleted")

    async def update_white(self, request: Request[UpdateGlobalWhiteAddrsRequest]) -> Answer:
        header, failed = request.header, WHITE_FAILED
        addresses = [one.strip() for one in OUTSIDE_BRACES.split(header.globalWhiteAddrs or "")]
        text = f"The globalWhiteAddresses[{header.globalWhiteAddrs}] has been updated failed."

        def change(values: Values) -> str:
            path = header.aclFileFullPath or next(iter(values))
            if path not in values:
                raise Refused(failed, text)
            values[path]["globalWhiteRemoteAddresses"] = [one for one in addresses if one]
            return path

        what = f"globalWhiteRemoteAddresses set to {addresses}"
        return await self._change(request, change, failed, what)

    def versions(self, request: Request[None]) -> Answer:
        versions = self._table.versions()
        name, address, cluster = self._broker
        header = GetAclVersionResponse(
            brokerName=name,
            brokerAddr=address,
            clusterName=cluster,
            version=next(iter(versions.values())).encode().decode(),
            allAclFileVersion=msgspec.json.encode(versions).decode(),
        )
        return Answer(header)

    def show(self, request: Request[None]) -> Answer:
        """Answers with all accounts, without their secrets, which Apache's servers send in clear."""
        rows = [row for value in self._table.values.values() for row in value.get("accounts") or ()]
        white = [
            str(one)
            for value in self._table.values.values()
            for one in value.get("globalWhiteRemoteAddresses") or ()
        ]
        return Answer(
            body=AclConfig(globalWhiteAddrs=white, plainAccessConfigs=list(map(_shown, rows))).encode()
        )

    async def _change(
        self, request: Request[Any], change: Callable[[Values], str], failed: int, what: str
    ) -> Answer:
        """Changes a file and notes it in the audit log; a change that cannot be is answered with `failed`."""
        identity = self._link.name_of(request)
        name = "" if identity is None else identity.name
        address, code = source_of(request.connection).address, request.command.code
        try:
            await self._table.change(change)
        except AccessFileFault as fault:
            self._audit.refused(name, address, code, str(fault))
            raise Refused(failed, str(fault)) from None
        except Refused as refused:
            self._audit.refused(name, address, code, refused.remark)
            raise
        log.info("Accounts changed by %s from %s: %s", name, address, what)
        self._audit.changed(name, address, code, what)
        return Answer()


def _given(header: UpdateAclConfigRequest) -> dict[str, Any]:
    """Returns the fields of an account that a request has, as the file has them."""
    row: dict[str, Any] = {"accessKey": (header.accessKey or "").strip()}
    row["secretKey"] = (header.secretKey or "").strip()
    row |= {name: text for name in PLAIN if (text := getattr(header, name)) is not None}
    if header.admin is not None:
        row["admin"] = header.admin
    for name in LISTS:
        text = getattr(header, name)
        if text is not None:
            row[name] = [one.strip() for one in text.split(",") if one.strip()]
    return row


def _check_perm(row: str) -> None:
    """Raises Refused, in Apache's words, for a permission that is not of the form `topicA=SUB`."""
    name, equals, perm = row.partition("=")
    if not name or not equals or "=" in perm:
        raise Refused(
            UPDATE_FAILED,
            f"Parse Resource format error for {row[:MAX_QUOTE]}.\n"
            "The expected resource format is 'Res=Perm'. For example: topicA=SUB",
        )
    if perm not in PERMS:
        raise Refused(
            UPDATE_FAILED,
            f"Parse resource permission error for {row[:MAX_QUOTE]}.\n"
            "The expected permissions are 'SUB' or 'PUB' or 'SUB|PUB' or 'PUB|SUB'.",
        )


def _find(values: Values, key: str) -> tuple[str, dict[str, Any] | None]:
    """Returns the file that has an account, and its row; None for a row: no file has it."""
    for path, value in values.items():
        for row in value.get("accounts") or ():
            if str(row.get("accessKey")).strip() == key:
                return path, row
    return "", None


def _shown(row: dict[str, Any]) -> PlainAccessConfig:
    shown = PlainAccessConfig(
        accessKey=str(row.get("accessKey")), admin=str(row.get("admin")).lower() == "true"
    )
    for name in PLAIN:
        if row.get(name) is not None:
            setattr(shown, name, str(row[name]))
    for name in LISTS:
        if row.get(name):
            setattr(shown, name, [str(one) for one in row[name]])
    return shown
