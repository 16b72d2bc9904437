"""gunicorn, with the producer created and started once, before the workers are forked.

    NAMESRV_ADDR=127.0.0.1:9876 gunicorn --preload --workers 4 prefork:application

Each worker opens its own connections at its first send, with its own client id; the master keeps its own.
"""

import os
from collections.abc import Callable, Iterable
from typing import Any

from turbopump import Message, Producer

producer = Producer("prefork")
producer.start()


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    receipt = producer.send(Message("PreforkTopic", str(os.getpid()).encode()))
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [f"{os.getpid()} {receipt.message_id}".encode()]
