"""Compares our Python client with those of Kafka, Redis and NATS: `python -m benchmarks.clients`."""
