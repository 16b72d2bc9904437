"""Commands of mqadmin that only some versions of Apache have."""

from __future__ import annotations

COMMANDS_OF_5 = "commands of 5"
# Access rights of 4.9, which a broker without them leaves unanswered, and commands that read local files.
ACCESS_OF_4_9 = {"updateAclConfig", "deleteAclConfig", "clusterAclConfigVersion", "updateGlobalWhiteAddr"}
