"""What the tests of metrics share with others."""

SWITCHES = {
    "enableStatsMetrics": "rocketmq_topic_number",
    "enableRequestMetrics": "rocketmq_messages_in_total",
    "enableConnectionMetrics": "rocketmq_producer_connections",
    "enableLagAndDlqMetrics": "rocketmq_consumer_lag_messages",
    "enableMessageStoreMetrics": "rocketmq_storage_size_bytes",
    "enableRemotingMetrics": "rocketmq_rpc_latency_milliseconds",
}
