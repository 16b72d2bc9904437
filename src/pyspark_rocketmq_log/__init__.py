"""Spark looks for packages of this name: format `rocketmq-log` is there without being registered."""

from turbopump.pipelines.log_source import RocketMqLog as DefaultSource

__all__ = ["DefaultSource"]
