"""Permission bits of topics, queues and brokers, as routes and topic tables carry them."""

INHERIT = 1
"""New topics may be created after this one (TBW102)."""
WRITE = 2
READ = 4
READ_WRITE = READ | WRITE


def permission_text(permission: int) -> str:
    """Returns three characters as Apache prints them: `RW-` for 6."""
    return "".join(
        sign if permission & bit else "-" for sign, bit in (("R", READ), ("W", WRITE), ("X", INHERIT))
    )
