"""Headers of requests about users, policies (5.x) and accounts (4.x) of access control."""

from turbopump.protocol.headers.base import Header


class UserRequest(Header):
    """Requests 3001 to 3004, tool to broker: create, update, delete or show one user."""

    username: str | None = None


class ListUsersRequest(Header):
    """Request 3005, tool to broker: list the users whose names contain `filter`."""

    filter: str | None = None


class AclRequest(Header):
    """Requests 3006, 3007 and 3009, tool to broker: create, update or show the policies of `User:name`."""

    subject: str | None = None


class DeleteAclRequest(Header):
    """Request 3008, tool to broker: delete all policies of a subject, or those about one resource."""

    subject: str | None = None
    policyType: str | None = None
    resource: str | None = None


class ListAclsRequest(Header):
    """Request 3010, tool to broker: list policies by parts of subject and resource."""

    subjectFilter: str | None = None
    resourceFilter: str | None = None


class UpdateAccountRequest(Header):
    """Request 50, tool to broker: create or update an account; lists are separated by commas."""

    accessKey: str | None = None
    secretKey: str | None = None
    whiteRemoteAddress: str | None = None
    admin: bool | None = None
    defaultTopicPerm: str | None = None
    defaultGroupPerm: str | None = None
    topicPerms: str | None = None
    groupPerms: str | None = None


class DeleteAccountRequest(Header):
    """Request 51, tool to broker: delete an account."""

    accessKey: str | None = None


class UpdateWhiteAddressesRequest(Header):
    """Request 53, tool to broker: replace the addresses that need no account, in one file."""

    globalWhiteAddrs: str | None = None
    aclFileFullPath: str | None = None


class AccountVersionsResponse(Header):
    """Response to 52: versions of the account files as JSON, and which broker has them."""

    brokerName: str
    brokerAddr: str
    clusterName: str
    version: str | None = None
    allAclFileVersion: str | None = None
