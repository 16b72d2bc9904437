"""Sends in flight while the program continues: each is a concurrent.futures.Future."""

import concurrent.futures

from turbopump import Message, Producer

with Producer("uploads") as producer:
    sending = {producer.send_async(Message("FileTopic", b"part %d" % number)): number for number in range(20)}
    print(f"under way: {len(sending)} sends")  # no more than max_in_flight; then send_async's futures wait
    for future in concurrent.futures.as_completed(sending, timeout=30):
        receipt = future.result()  # or raises what `send` would raise
        if sending[future] == 7:
            print(f"part 7: {receipt.status.name}")
    print("done:", sum(future.done() for future in sending))
