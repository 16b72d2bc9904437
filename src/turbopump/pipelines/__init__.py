"""Topics as tables and streams: RocketMQ's messages in Arrow and Spark.

    from turbopump import pipelines

    pipelines.register(spark)
    spark.readStream.format("rocketmq").option("nameServer", "127.0.0.1:9876").option("subscribe", "T").load()

Nothing heavy is imported before it is used: PyArrow comes with `turbopump[arrow]`, PySpark and Delta with
`turbopump[spark]`.
"""
