"""What Transactor.java does, with our client.

Usage: transactor.py namesrvAddr group topic phase logFile (NAME:LOCAL:PHASE)...
"""

import sys
import threading
import time

from turbopump import Decision, Message, MessageExt, Producer


def main(name_server: str, group: str, topic: str, phase: str, path: str, *wishes: str) -> None:
    lock = threading.Lock()

    def note(line: str) -> None:
        with lock, open(path, "a") as log:
            log.write(line + "\n")

    def execute(message: Message) -> Decision | None:
        name, local, _ = message.body.decode().split(":")
        note(f"executed {name}")
        if local == "throw":
            raise RuntimeError("as wished")
        if local in ("slow", "hang"):
            time.sleep(4 if local == "slow" else 10**6)
        if local == "rollback":
            return Decision.ROLLBACK
        return Decision.COMMIT if local in ("commit", "slow") else None

    def check(message: MessageExt) -> Decision:
        name, _, when = message.text.split(":")
        note(f"checked {name}")
        if when == phase:
            return Decision.COMMIT
        return Decision.ROLLBACK if when == "!" + phase else Decision.UNKNOWN

    with Producer(group, name_servers=name_server, check=check, send_msg_timeout=10) as producer:
        for wish in wishes:
            producer.send_in_transaction(Message(topic, wish.encode(), tags="tag", keys=wish), execute)
        print("all sent", flush=True)
        time.sleep(10**6)


if __name__ == "__main__":
    main(*sys.argv[1:])
