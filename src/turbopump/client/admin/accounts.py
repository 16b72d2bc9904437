"""Administers accounts of access control 4.x at one broker, by its address: the files `plain_acl.yml`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from turbopump.client.admin.calls import AdminCalls
from turbopump.protocol import bodies
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.display import NotebookTable
from turbopump.protocol.errors import Refused
from turbopump.protocol.headers.access import (
    DeleteAclConfigRequest,
    GetAclVersionResponse,
    UpdateAclConfigRequest,
    UpdateGlobalWhiteAddrsRequest,
)
from turbopump.protocol.headers.base import Header

COMMA = ","
HIDDEN = "(hidden)"
REFUSALS = range(209, 212)
"""Codes of refused changes; later versions use these numbers for something else."""


class AccountRefused(Refused):
    """A broker refused a change of accounts of access control 4.x."""

    def __str__(self) -> str:
        return f"{self.code}: {self.remark}"


@dataclass(frozen=True, slots=True, repr=False)
class AclFiles(NotebookTable):
    """The files with accounts of one broker: the version of each, by its path."""

    cluster: str
    broker: str
    address: str
    versions: Mapping[str, bodies.DataVersion]
    """Brokers before 4.9.3 have one file and do not say its path: it is ""."""


@dataclass
class AclAccounts:
    """Administers accounts of access control 4.x at one broker, by its address.

    Brokers of 4.5.2 to 5.3.2 have these requests, those of 5.x that have no such accounts do not answer.

    Example:

        account = PlainAccessConfig(accessKey="billing", secretKey="a long secret", topicPerms=["orders=SUB"])
        await admin.accounts.update("127.0.0.1:10911", account)
    """

    asking: AdminCalls

    async def update(self, address: str, account: bodies.PlainAccessConfig) -> None:
        """Creates an account or changes it. `accessKey` and `secretKey` must be given each time."""
        header = UpdateAclConfigRequest(
            accessKey=account.accessKey,
            secretKey=account.secretKey,
            whiteRemoteAddress=account.whiteRemoteAddress,
            defaultTopicPerm=account.defaultTopicPerm,
            defaultGroupPerm=account.defaultGroupPerm,
            topicPerms=_joined(account.topicPerms),
            groupPerms=_joined(account.groupPerms),
            admin=account.admin,
        )
        await self._change(address, RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, header, account.secretKey)

    async def delete(self, address: str, access_key: str) -> None:
        """Deletes an account. Raises Refused if there is none."""
        header = DeleteAclConfigRequest(access_key)
        await self._change(address, RequestCode.DELETE_ACL_CONFIG, header)

    async def allow_addresses(self, address: str, patterns: Sequence[str], path: str | None = None) -> None:
        """Replaces the addresses that need no key, in the default file or in the one at `path`."""
        header = UpdateGlobalWhiteAddrsRequest(COMMA.join(patterns), path)
        await self._change(address, RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, header)

    async def files(self, address: str) -> AclFiles:
        """Returns which files with accounts a broker has loaded, and their versions."""
        answer = await self.asking.ask(address, RequestCode.GET_BROKER_CLUSTER_ACL_INFO)
        header = GetAclVersionResponse.from_ext(answer.ext)
        return AclFiles(
            header.clusterName or "",
            header.brokerName or "",
            header.brokerAddr or address,
            _versions(header),
        )

    async def config(self, address: str) -> bodies.AclConfig:
        """Returns all accounts and white addresses. Brokers up to 4.9.7 and 5.1 answer, with the secrets."""
        answer = await self.asking.ask(address, RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG)
        return bodies.AclConfig.decode(answer.body)

    async def _change(
        self, address: str, code: RequestCode, header: Header, secret: str | None = None
    ) -> None:
        """Makes a change. Raises AccountRefused, without the secret, which Apache's brokers repeat."""
        try:
            await self.asking.ask(address, code, header)
        except Refused as refused:
            if refused.code not in REFUSALS:
                raise
            told = AccountRefused(refused.code, refused.remark.replace(secret or HIDDEN, HIDDEN))
            told.add_note(f"refused by {address}")
            raise told from None


def _joined(items: Sequence[str] | None) -> str | None:
    return None if items is None else COMMA.join(items)


def _versions(header: GetAclVersionResponse) -> dict[str, bodies.DataVersion]:
    if not header.allAclFileVersion:
        return {"": bodies.DataVersion.decode((header.version or "{}").encode())}
    kind = dict[str, bodies.DataVersion]
    return bodies.decode(kind, header.allAclFileVersion.encode())
