"""Apache's brokers take rows at least once; exactly once is refused there, with the way out."""

from __future__ import annotations

import pytest
from tests.spark.reading import bodies, make_topic
from tests.spark.sink_kit import numbers, rows, sink, stream

VERSIONS = ["4.9.7", pytest.param("5.5.0", marks=pytest.mark.long)]


@pytest.mark.parametrize("version", VERSIONS)
def test_apache_takes_rows_at_least_once_and_refuses_exactly_once(spark, start, topic, tmp_path, version):
    apache = start(version)
    make_topic(apache, topic)
    sink(rows(spark), apache, topic).save()
    assert bodies(apache, topic, numbers().total()) == numbers()
    with pytest.raises(Exception, match=r"(?s)keeps no ledger of decisions.*delivery=at-least-once"):
        sink(rows(spark), apache, topic, delivery="exactly-once").save()
    query = stream(spark, tmp_path, apache, topic)
    with pytest.raises(Exception, match=r"(?s)keeps no ledger of decisions.*delivery=at-least-once"):
        query.awaitTermination()
    stream(spark, tmp_path, apache, topic, delivery="at-least-once").awaitTermination()
    assert bodies(apache, topic, 2 * numbers().total()) == numbers() + numbers()
