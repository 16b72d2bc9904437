"""Reads a topic again from a point in time: after a bug was fixed, or when a program needs the last hour."""

import time
from datetime import UTC, datetime

from turbopump import Message, Producer, PullConsumer

with Producer("meter") as producer:
    producer.send_batch([Message("MeterTopic", b"old %d" % number) for number in range(10)], by="meter")
    time.sleep(0.1)
    moment = datetime.now(UTC)
    time.sleep(0.1)
    producer.send_batch([Message("MeterTopic", b"new %d" % number) for number in range(5)], by="meter")

with PullConsumer("meter-readers", topics=["MeterTopic"]) as consumer:
    consumer.seek_to_time(moment)  # or "2026-11-01T00:00:00Z", "10m", milliseconds since 1970
    readings = []
    for message in consumer:  # waits for more messages forever, so break when there are enough
        readings.append(message.text)
        if len(readings) == 5:
            break
    print("since then:", *readings)
    consumer.seek_to_begin()
    print("the first of all:", consumer.poll(timeout=10)[0].text)
