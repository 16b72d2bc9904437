"""What happened before an anomaly, in lines that one can read."""

from tests.simulation.raft.check import Anomaly
from tests.simulation.raft.history import DeadlinesPassed, Flushed, History, Requested, Responded, Spoke

MAX_LINES = 60
MAX_LINES_AFTER = 3
_REPEATED = (DeadlinesPassed, Flushed, Requested, Responded, Spoke)
"""Messages say the same, or nothing of interest happened."""


def transcript(history: History, anomaly: Anomaly) -> str:
    """Returns the last lines before an anomaly, and a few after it."""
    lines = [(one.at, str(one)) for one in history.occurrences if not isinstance(one, _REPEATED)]
    before = sum(at <= anomaly.at for at, _ in lines)
    shown = lines[max(0, before - MAX_LINES) : before + MAX_LINES_AFTER]
    kind = "flushed" if history.has_power_cuts else "written"
    head = f"{len(history.members)} members, an entry is safe when it is {kind}"
    return "\n".join([head, *(f"{at / 1000:9.3f}  {text}" for at, text in shown)])
