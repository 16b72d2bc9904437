"""Handlers of requests about users and policies of 5.x (3001 to 3010), with Apache's texts.

In: requests that have passed the gate. Out: a changed book of users, or what it says; never a password,
which Apache's servers answer in clear. What only a super user may change, `auth.book` knows.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import msgspec

from turbopump.auth.book import UserBook, user_info
from turbopump.guard.audit import AuditLog
from turbopump.guard.link import AccessLink, source_of
from turbopump.guard.users import UserTable
from turbopump.protocol.bodies import AclInfo, Body, UserInfo
from turbopump.protocol.codes import RequestCode as Code
from turbopump.protocol.command import NOT_SET
from turbopump.protocol.errors import Refused, SystemFailure
from turbopump.protocol.headers.access import (
    AclRequest,
    DeleteAclRequest,
    ListAclsRequest,
    ListUsersRequest,
    UpdateUserRequest,
    UpdateUserResponse,
    UserRequest,
)
from turbopump.remoting.router import Answer, Request, Route, Routes

log = logging.getLogger(__name__)

B = TypeVar("B", bound=Body)

MAX_BODY = 1 << 20  # bytes: a user, or the policies of one

Change = Callable[[UserBook, bool], UserBook]
"""Returns the changed book; called with whether a super user asks for it."""


class UserHandler:
    """Handles requests that show and change users and policies."""

    def __init__(self, users: UserTable, link: AccessLink, audit: AuditLog) -> None:
        self._users = users
        self._link = link
        self._audit = audit

    def routes(self) -> Routes:
        return {
            Code.AUTH_CREATE_USER: Route(UserRequest, self.create_user),
            Code.AUTH_UPDATE_USER: Route(UpdateUserRequest, self.update_user),
            Code.AUTH_DELETE_USER: Route(UserRequest, self.delete_user),
            Code.AUTH_GET_USER: Route(UserRequest, self.show_user),
            Code.AUTH_LIST_USER: Route(ListUsersRequest, self.list_users),
            Code.AUTH_CREATE_ACL: Route(AclRequest, self.grant),
            Code.AUTH_UPDATE_ACL: Route(AclRequest, self.grant),
            Code.AUTH_DELETE_ACL: Route(DeleteAclRequest, self.revoke),
            Code.AUTH_GET_ACL: Route(AclRequest, self.show_acl),
            Code.AUTH_LIST_ACL: Route(ListAclsRequest, self.list_acls),
        }

    async def create_user(self, request: Request[UserRequest]) -> Answer:
        name, info = request.header.username or "", _body(UserInfo, request.body)
        return await self._change(request, lambda book, by_super: book.created(name, info, by_super))

    async def update_user(self, request: Request[UpdateUserRequest]) -> Answer:
        """Changes a user; with `keepSecret`, which Apache's tools do not send, adds its new password."""
        name, info = request.header.username or "", _body(UserInfo, request.body)
        keeps = request.header.keepSecret or False
        answer = await self._change(request, lambda book, by_super: book.updated(name, info, by_super, keeps))
        if keeps:
            answer = replace(answer, header=UpdateUserResponse(len(self._users.book.users[name].secrets)))
        return answer

    async def delete_user(self, request: Request[UserRequest]) -> Answer:
        name = request.header.username or ""
        return await self._change(request, lambda book, by_super: book.deleted(name, by_super))

    def show_user(self, request: Request[UserRequest]) -> Answer:
        user = self._users.book.users.get(request.header.username or "")
        return Answer(remark=NOT_SET, body=b"" if user is None else user_info(user).encode())

    def list_users(self, request: Request[ListUsersRequest]) -> Answer:
        return _listed(self._users.book.user_infos(request.header.filter or ""))

    async def grant(self, request: Request[AclRequest]) -> Answer:
        """Adds entries to the policies of a user: creation and update are the same, as with Apache."""
        info = _body(AclInfo, request.body)
        subject = (info.subject if info is not None else None) or request.header.subject
        return await self._change(request, lambda book, by_super: book.granted(subject, info, by_super))

    async def revoke(self, request: Request[DeleteAclRequest]) -> Answer:
        header = request.header

        def change(book: UserBook, by_super: bool) -> UserBook:
            return book.revoked(header.subject, header.policyType, header.resource, by_super)

        return await self._change(request, change)

    def show_acl(self, request: Request[AclRequest]) -> Answer:
        info = self._users.book.acl(request.header.subject)
        return Answer(remark=NOT_SET, body=b"" if info is None else info.encode())

    def list_acls(self, request: Request[ListAclsRequest]) -> Answer:
        header = request.header
        return _listed(self._users.book.acls(header.subjectFilter or "", header.resourceFilter or ""))

    async def _change(self, request: Request[Any], change: Change) -> Answer:
        """Changes the users and notes it in the audit log; refusals are noted too."""
        identity = self._link.name_of(request)
        name, is_super = ("", False) if identity is None else (identity.name, identity.is_super)
        address, code = source_of(request.connection).address, request.command.code
        try:
            changes = await self._users.change(lambda book: change(book, is_super))
        except Refused as refused:
            self._audit.refused(name, address, code, refused.remark)
            raise
        for line in changes:
            log.info("Users changed by %s from %s: %s", name, address, line)
            self._audit.changed(name, address, code, line)
        return Answer(remark=NOT_SET)


def _body(kind: type[B], data: bytes) -> B | None:
    if len(data) > MAX_BODY:
        raise SystemFailure(f"the body must have at most {MAX_BODY} bytes, got {len(data)}")
    return kind.decode(data) if data else None


def _listed(infos: Sequence[Body]) -> Answer:
    return Answer(remark=NOT_SET, body=msgspec.json.encode(infos) if infos else b"")
