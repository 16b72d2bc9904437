"""The notebook of examples/ runs from its first cell to its last, and shows what it says."""

import os
from pathlib import Path

import pytest
from tests.spark.conftest import need_spark

NOTEBOOK = Path(__file__).parents[2] / "examples" / "read_a_store.ipynb"
CELL_TIMEOUT_S = 180


def test_the_notebook_shows_both_ways(tmp_path, monkeypatch):
    need_spark()
    nbclient = pytest.importorskip("nbclient")
    import nbformat

    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client = nbclient.NotebookClient(
        notebook, timeout=CELL_TIMEOUT_S, resources={"metadata": {"path": os.fspath(tmp_path)}}
    )
    client.execute()
    shown = [
        output.get("data", {}).get("text/plain", "")
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
    ]
    assert any("body: binary" in text for text in shown)
    assert any("[(25," in text for text in shown)
    assert any("b'order 42'" in text for text in shown)
    assert eval(shown[-1]) == {"open": 25, "paid": 75}
