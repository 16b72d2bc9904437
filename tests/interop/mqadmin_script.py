"""Every mqadmin command of 4.9, except those about access rights, with good and bad arguments, in one order.

After them those that came with 5.x. Whichever tool runs it against whichever servers: on a fresh cluster the
same facts are printed.
"""

from __future__ import annotations

from . import mqadmin_operators as operators
from . import mqadmin_users as users
from .clients import Answers
from .mqadmin_session import Session

# Delays of a second, so that a retry is not waited for.
CONF = {"messageDelayLevel": "1s 1s 1s 1s 1s 1s", "traceTopicEnable": "true"}

PARTS = (
    operators.frame,
    users.topics,
    users.order,
    users.permissions,
    users.messages,
    users.groups,
    users.looking,
    users.troubles,
    users.progress,
    users.queues,
    operators.settings,
    operators.export,
    operators.statistics,
    users.offsets,
    users.sending,
    operators.name_server,
    operators.maintenance,
    operators.endless,
    operators.removing,
    operators.commands_of_5,
    operators.monitoring,
)


def run(session: Session) -> Answers:
    for part in PARTS:
        with session.section(part.__name__.replace("_", " ")):
            part(session)
    return session.answers
