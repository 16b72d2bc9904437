"""Users of access control 2.0: name, kind, status and up to two secrets."""

from dataclasses import dataclass, field
from enum import IntEnum

MAX_SECRETS = 2  # while a secret is replaced, the old and the new one are valid


class UserType(IntEnum):
    """Super users may do everything; normal ones what their policies allow. Apache's numbers."""

    SUPER = 1
    NORMAL = 2

    @property
    def text(self) -> str:
        return self.name.capitalize()


class UserStatus(IntEnum):
    """Whether a user is admitted. Apache's numbers."""

    ENABLE = 1
    DISABLE = 2

    @property
    def text(self) -> str:
        return self.name.lower()


TYPE_BY_TEXT = {kind.text: kind for kind in UserType}
STATUS_BY_TEXT = {status.text: status for status in UserStatus}


@dataclass(frozen=True, slots=True)
class User:
    """A user. The newest secret comes first; none is part of its text."""

    name: str
    secrets: tuple[str, ...] = field(repr=False)
    type: UserType = UserType.NORMAL
    status: UserStatus = UserStatus.ENABLE

    @property
    def is_super(self) -> bool:
        return self.type is UserType.SUPER

    @property
    def is_enabled(self) -> bool:
        return self.status is UserStatus.ENABLE

    @property
    def subject(self) -> str:
        """Name under which policies know this user."""
        return f"User:{self.name}"
