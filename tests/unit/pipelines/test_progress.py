from turbopump.pipelines.progress import StreamLag, lag_of, line

PROGRESS = {
    "id": "0f1e2d3c-aaaa", "name": "orders", "batchId": 12, "numInputRows": 20480,
    "durationMs": {
        "triggerExecution": 410, "addBatch": 300, "commitOffsets": 40, "latestOffset": 3, "queryPlanning": 7,
        "walCommit": 60, "getBatch": 0,
    },
    "sources": [
        {
            "endOffset": {"T": {"a": {"0": 100, "1": 50}}},
            "latestOffset": {"T": {"a": {"0": 1100, "1": 50}, "b": {"0": 24}}},
        }
    ],
}  # fmt: skip


def test_a_micro_batch_in_one_line():
    assert line(PROGRESS) == (
        "orders batch 12: 20,480 rows, 49,951 rows/s, 1,024 behind (most in one queue 1,000), 410 ms: "
        "latestOffset 3, queryPlanning 7, walCommit 60, addBatch 300, commitOffsets 40"
    )


def test_a_stream_without_a_name_and_without_lag():
    bare = {"id": "0f1e2d3c-aaaa", "batchId": 0, "durationMs": {}, "sources": [{"endOffset": None}]}
    assert line(bare) == "0f1e2d3c batch 0: 0 rows, 0 rows/s, 0 behind, 0 ms: "


def test_the_lag_of_each_source():
    assert lag_of(PROGRESS["sources"][0]) == StreamLag(1024, 0, 1000)
    text = {"endOffset": '{"T":{"a":{"0":5}}}', "latestOffset": '{"T":{"a":{"0":9}}}'}
    assert lag_of(text) == StreamLag(4, 4, 4)


def test_a_source_of_another_kind_has_no_lag():
    assert lag_of({"endOffset": '{"0":5}', "latestOffset": "17"}) == StreamLag()
    assert lag_of({"endOffset": "no json", "latestOffset": None}) == StreamLag()
