"""Headers of access control: accounts of 4.x (50 to 54), users and policies of 5.3 and later (3001 to 3010).

All fields may be absent: for most of them Apache answers that with a text of its own.
"""

from turbopump.protocol.headers.base import Header


class UpdateAclConfigRequest(Header):
    """Request 50, tool to broker: create an account or change it; lists are separated by commas.

    Name and secret must always be given.
    """

    accessKey: str | None = None
    secretKey: str | None = None
    whiteRemoteAddress: str | None = None
    defaultTopicPerm: str | None = None
    defaultGroupPerm: str | None = None
    topicPerms: str | None = None
    groupPerms: str | None = None
    admin: bool | None = None

    def __repr__(self) -> str:
        return f"UpdateAclConfigRequest(accessKey={self.accessKey!r}, …)"  # without the secret


class DeleteAclConfigRequest(Header):
    """Request 51, tool to broker: delete an account."""

    accessKey: str | None = None


class GetAclVersionResponse(Header):
    """Response to 52: versions of the files with accounts.

    `version` is the JSON of the DataVersion of the default file, `allAclFileVersion` (from 4.9.3 on) that of
    a map from path to DataVersion.
    """

    brokerName: str | None = None
    brokerAddr: str | None = None
    clusterName: str | None = None
    version: str | None = None
    allAclFileVersion: str | None = None


class UpdateGlobalWhiteAddrsRequest(Header):
    """Request 53, tool to broker: replace the white addresses, a comma list, in one file."""

    globalWhiteAddrs: str | None = None
    aclFileFullPath: str | None = None


class UserRequest(Header):
    """Requests 3001, 3003 and 3004, tool to broker: create (body: UserInfo), delete or get a user."""

    username: str | None = None


class UpdateUserRequest(Header):
    """Request 3002, tool to broker: change a user (body: UserInfo).

    `keepSecret` is Turbopump's own, not sent by Apache's tools: the password before stays valid too.
    """

    username: str | None = None
    keepSecret: bool | None = None


class UpdateUserResponse(Header):
    """Response of Turbopump to 3002 with `keepSecret`: how many secrets of the user are valid now."""

    validSecrets: int


class ListUsersRequest(Header):
    """Request 3005, tool to broker: users whose name contains `filter`, or all."""

    filter: str | None = None


class AclRequest(Header):
    """Requests 3006, 3007 and 3009, tool to broker: create, update (body: AclInfo) or get policies."""

    subject: str | None = None


class DeleteAclRequest(Header):
    """Request 3008, tool to broker: delete the entry of a resource, or all of them.

    Without `policyType` it is `Custom`.
    """

    subject: str | None = None
    policyType: str | None = None
    resource: str | None = None


class ListAclsRequest(Header):
    """Request 3010, tool to broker: policies whose subject and resources contain these texts, or all."""

    subjectFilter: str | None = None
    resourceFilter: str | None = None


class ExplainRequest(Header):
    """Request 9720, tool to server of ours: may a user do an action on a resource, and why.

    Without `source` the address is that of the sender.
    """

    user: str | None = None
    action: str | None = None
    resource: str | None = None
    source: str | None = None
