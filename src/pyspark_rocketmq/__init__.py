"""Spark looks for packages of this name: format `rocketmq` is there without `spark.dataSource.register`."""

from turbopump.pipelines.rocketmq import RocketMq as DefaultSource

__all__ = ["DefaultSource"]
