"""Scripts and what comes of them: the language of the transcripts.

A transcript is a text file. Lines that begin with `>` are commands, lines with `#` are remarks; what lies
between is what happened, written by `played`. `python -m tests.unit.raft.record` writes the files again.

    > group n0 n1 n2 [key=value ...]   servers with empty disks that know that the group is new; settings
                                       of NodeConfig, and flush=MS or flush=never (until `sync`)
    > set n0 key=value                 a setting of one server
    > log n0 t1 0-4, t2 5              what is on its disk, and `> saved n0 t2 [vote n1] [commit 4]`
    > start n0 n1                      all of the named servers (none named: all)
    > run 1500                         milliseconds
    > append n0 3                      entries of a client
    > stop n1, > crash n1, > wipe n1   cleanly; without what was not flushed; with an empty disk, not joined
    > cut n0 | n1 n2, > block n0 > n1, > heal
    > hold n0 > n1 APPEND, > release [reversed|twice|kept], > drop      messages with that word
    > sync n1, > expire n0 40, > transfer n0 n2, > batches n0 n1 (n0 knows that n1 takes them)
    > mute heartbeat, > unmute         lines with that word are not written
    > show                             roles and logs
"""

import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tests.unit.raft.group import Group, Server, pairs
from tests.unit.raft.memory_log import MemoryLog, entry

from turbopump.raft import NodeConfig, PeerTakesBatches, SavedState, Transfer

FILES = sorted((Path(__file__).parent / "transcripts").glob("*.txt"))


def played(script: str) -> str:
    """Returns a transcript with everything that happens written anew."""
    stage = Stage()
    text: list[str] = []
    for line in script.splitlines():
        if line.startswith(">"):
            text.append(line)
            stage.do(line.removeprefix(">"))
            text += stage.group.lines
            stage.group.lines = []
        elif line.startswith("#") or not line.strip():
            text.append(line)
    return "\n".join(text).rstrip() + "\n"


class Stage:
    """Runs the commands of one script."""

    def __init__(self) -> None:
        self.group = Group()
        self._commands: dict[str, Callable[[list[str]], None]] = {
            name.removeprefix("_do_"): getattr(self, name) for name in dir(self) if name.startswith("_do_")
        }

    def do(self, command: str) -> None:
        """Runs one command."""
        name, *words = shlex.split(command)
        self._commands[name](words)

    def _server(self, name: str) -> Server:
        return self.group.servers[name]

    # servers

    def _do_group(self, words: list[str]) -> None:
        names = [word for word in words if "=" not in word]
        for place, name in enumerate(names):
            wait = 300 * (place + 1)
            config = NodeConfig(name, tuple(names), min_vote_wait_ms=wait, max_vote_wait_ms=wait)
            self.group.servers[name] = Server(name, config)
            self._do_set([name, *(word for word in words if "=" in word)])

    def _do_set(self, words: list[str]) -> None:
        server = self._server(words[0])
        for word in words[1:]:
            key, value = word.split("=")
            if key == "flush":
                server.flush_ms = None if value == "never" else int(value)
            elif key == "vote_wait_ms":
                server.config = replace(
                    server.config, min_vote_wait_ms=int(value), max_vote_wait_ms=int(value)
                )
            elif key == "preferred_leaders":
                server.config = replace(server.config, preferred_leaders=tuple(value.split(",")))
            else:
                server.config = replace(server.config, **{key: int(value)})  # type: ignore[arg-type]

    def _do_log(self, words: list[str]) -> None:
        server = self._server(words[0])
        server.log = MemoryLog()
        for run in " ".join(words[1:]).split(","):
            term, span = run.split()
            first, _, last = span.partition("-")
            for index in range(int(first), int(last or first) + 1):
                server.log.append(entry(index, int(term[1:])))
        server.log.sync()

    def _do_saved(self, words: list[str]) -> None:
        fields = dict(zip(words[2::2], words[3::2], strict=True))
        committed = int(fields.get("commit", -1))
        self._server(words[0]).saved = SavedState(int(words[1][1:]), fields.get("vote"), True, committed)

    def _do_start(self, words: list[str]) -> None:
        for name in words or self.group.servers:
            self.group.start(self._server(name))

    def _do_stop(self, words: list[str]) -> None:
        for name in words:
            self.group.stop(self._server(name))

    def _do_crash(self, words: list[str]) -> None:
        for name in words:
            self._server(name).log.crash()
            self.group.stop(self._server(name))

    def _do_wipe(self, words: list[str]) -> None:
        for name in words:
            server = self._server(name)
            server.log, server.saved = MemoryLog(), SavedState(joined=False)
            if server.node is not None:
                self.group.stop(server)

    # time and messages

    def _do_run(self, words: list[str]) -> None:
        self.group.run(int(words[0]))

    def _do_cut(self, words: list[str]) -> None:
        place = words.index("|")
        self.group.blocked |= set(pairs(words[:place], words[place + 1 :]))

    def _do_block(self, words: list[str]) -> None:
        self.group.blocked.add((words[0], words[2]))

    def _do_heal(self, words: list[str]) -> None:
        self.group.blocked.clear()

    def _do_hold(self, words: list[str]) -> None:
        self.group.holds.append((words[0], words[2], words[3]))

    def _do_release(self, words: list[str]) -> None:
        held, self.group.held, self.group.holds = self.group.held, [], []
        if "kept" in words:
            self.group.held = list(held)
        if "reversed" in words:
            held.reverse()
        for message in held * (2 if "twice" in words else 1):
            self.group.later(0, message.arrive)

    def _do_drop(self, words: list[str]) -> None:
        self.group.held, self.group.holds = [], []

    # what operators and brokers do

    def _do_append(self, words: list[str]) -> None:
        self.group.append(self._server(words[0]), int(words[1]))

    def _do_sync(self, words: list[str]) -> None:
        self.group.sync(self._server(words[0]))

    def _do_expire(self, words: list[str]) -> None:
        self._server(words[0]).log.expire(int(words[1]))

    def _do_batches(self, words: list[str]) -> None:
        for peer in words[1:]:
            self.group.step(self._server(words[0]), PeerTakesBatches(peer))

    def _do_transfer(self, words: list[str]) -> None:
        self.group.step(self._server(words[0]), Transfer(words[1], self.group.operator_request()))

    # what is written

    def _do_mute(self, words: list[str]) -> None:
        self.group.muted |= set(words)

    def _do_unmute(self, words: list[str]) -> None:
        self.group.muted.clear()

    def _do_show(self, words: list[str]) -> None:
        for server in self.group.servers.values():
            node = server.node
            state = f"{node.role} t{node.term}, commit {node.committed_index}" if node else "stopped"
            self.group.lines.append(f"        {server.name} {state}, log {server.log}")
