from turbopump.pipelines.jobs.counts import (
    MALFORMED,
    READ,
    SOURCE,
    WRITTEN,
    RowCounts,
    counts_of_progress,
    refusal,
)


def progress(read, written, late=0, malformed=0, source=None):
    seen = {READ: {"rows": read}, WRITTEN: {"rows": written}, MALFORMED: {"rows": malformed}}
    if source is not None:
        seen[SOURCE] = {"rows": source}
    return {"observedMetrics": seen, "stateOperators": [{"numRowsDroppedByWatermark": late}]}


def test_all_micro_batches_count():
    total = RowCounts()
    for _ in range(250):
        total = total.plus(counts_of_progress(progress(10, 7, 1, 2, source=15)))
    assert total == RowCounts(read=2500, written=1750, late=250, malformed=500, filtered=1250)
    assert total.without_duplicates().duplicate == 500


def test_a_micro_batch_without_rows_has_no_counts():
    assert counts_of_progress({"observedMetrics": {}, "stateOperators": []}) == RowCounts()
    assert counts_of_progress({}) == RowCounts()


def test_dropped_rows_are_a_failure_unless_they_were_allowed():
    assert refusal(RowCounts(read=5, written=2, duplicate=3, filtered=7), ()) is None
    told = refusal(RowCounts(late=2, malformed=1), ())
    assert told is not None
    assert told.startswith(
        "rows were dropped or have an unreadable body: 2 late, 1 malformed; --allow late,malformed"
    )
    assert refusal(RowCounts(late=2), ("late",)) is None
    assert "1 malformed" in str(refusal(RowCounts(late=2, malformed=1), ("late",)))
