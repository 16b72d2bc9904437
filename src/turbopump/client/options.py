"""Keyword arguments of the clients. Written by scripts/client_options.py: change settings.py."""

from typing import TypedDict

from turbopump.client.group.rebalance import Strategy
from turbopump.client.settings import AccessChannel, ConsumeFromWhere, LatencyTable, MessageModel
from turbopump.client.times import Time


class ClientOptions(TypedDict, total=False):
    """Settings of every client."""

    client_ip: str
    instance_name: str
    namespace: str
    namespace_v2: str
    unit_mode: bool
    unit_name: str
    name_server_domain: str
    name_server_subgroup: str
    poll_name_server_interval: float
    heartbeat_broker_interval: float
    use_heartbeat_v2: bool
    persist_consumer_offset_interval: float
    pull_time_delay_when_exception: float
    mq_client_api_timeout: float
    connect_timeout: float
    vip_channel_enabled: bool
    decode_decompress_body: bool
    use_tls: bool
    tls_trust_cert_path: str
    tls_auth_server: bool
    tls_cert_path: str
    tls_key_path: str
    tls_key_password: str
    socks_proxy_config: str
    access_key: str
    secret_key: str
    security_token: str
    credentials_file: str
    enable_trace: bool
    trace_topic: str
    trace_msg_batch_num: int
    access_channel: AccessChannel


class ProducerOptions(ClientOptions, total=False):
    """Settings of a producer."""

    telemetry: bool
    enable_stream_request_type: bool
    create_topic_key: str
    default_topic_queue_nums: int
    send_msg_timeout: float
    send_msg_max_timeout_per_request: float
    compress_msg_body_over_howmuch: int
    compress_level: int
    compress_type: str
    retry_times_when_send_failed: int
    retry_another_broker_when_not_store_ok: bool
    max_message_size: int
    retry_response_codes: frozenset[int]
    send_latency_fault_enable: bool
    start_detector_enable: bool
    detect_timeout: float
    detect_interval: float
    latency_max: tuple[float, ...]
    not_available_duration: tuple[float, ...]
    latency_table: LatencyTable
    max_in_flight: int
    max_in_flight_bytes: int
    auto_batch: bool
    batch_max_delay: float
    batch_max_bytes: int
    total_batch_max_bytes: int
    check_thread_pool_max_size: int
    check_request_hold_max: int


class ReadingOptions(ClientOptions, total=False):
    """Settings of push and pull consumers."""

    message_model: MessageModel
    consume_from_where: ConsumeFromWhere
    consume_timestamp: Time | None
    allocate_message_queue_strategy: Strategy
    pull_threshold_for_queue: int
    pull_threshold_size_for_queue: int
    pull_batch_size_in_bytes: int
    local_offset_store_dir: str


class ConsumerOptions(ReadingOptions, total=False):
    """Settings of a push consumer."""

    telemetry: bool
    enable_stream_request_type: bool
    consume_thread_min: int
    consume_thread_max: int
    consume_concurrently_max_span: int
    pull_threshold_for_topic: int
    pull_threshold_size_for_topic: int
    pull_interval: float
    consume_message_batch_max_size: int
    pull_batch_size: int
    post_subscription_when_pull: bool
    max_reconsume_times: int
    suspend_current_queue_time: float
    consume_timeout: float
    await_termination_when_shutdown: float
    rebalance_wait_interval: float
    rebalance_lock_interval: float
    rebalance_lock_max_live_time: float
    max_time_consume_continuously: float


class PullOptions(ReadingOptions, total=False):
    """Settings of a pull consumer."""

    telemetry: bool
    enable_stream_request_type: bool
    broker_suspend_max_time: float
    consumer_timeout_when_suspend: float
    consumer_pull_timeout: float
    auto_commit: bool
    auto_commit_interval: float
    pull_batch_size: int
    pull_threshold_for_all: int
    consume_max_span: int
    poll_timeout: float
    topic_metadata_check_interval: float
    max_reconsume_times: int
