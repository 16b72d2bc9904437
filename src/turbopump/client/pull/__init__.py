"""The pull consumer, which reads when the program asks for messages, and single pulls for other client code.

`puller.py` asks brokers for records and offsets; the push consumer uses it too. `consumer.py` is what users
call, with `single_pulls.py` as its base; `member.py` keeps the consumer in its group, `prefetch.py` fills a
`PrefetchBuffer` for each queue, and `topic_reader.py` reads a whole topic without a group.

What never belongs here: handlers, threads, and any knowledge of how messages are processed.
"""
