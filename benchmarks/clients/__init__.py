"""Our Python client beside those of Kafka, Redis and NATS: `python -m benchmarks.clients`."""
