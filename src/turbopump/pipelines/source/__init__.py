"""Reads topics through their brokers as a Spark table or stream, for format `rocketmq`."""
