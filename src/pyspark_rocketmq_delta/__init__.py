"""Spark looks for packages of this name: format `rocketmq-delta` is there without being registered."""

from turbopump.pipelines.lake.spark import RocketMqDelta as DefaultSource

__all__ = ["DefaultSource"]
