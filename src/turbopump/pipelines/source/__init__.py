"""Format `rocketmq`, reading: topics through their brokers, as a table or as a stream."""
