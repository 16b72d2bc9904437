from scripts.change_cost import report, touched

PATCH = """\
diff --git a/src/turbopump/broker/server.py b/src/turbopump/broker/server.py
--- a/src/turbopump/broker/server.py
+++ b/src/turbopump/broker/server.py
@@ -1,2 +1,3 @@
 import asyncio
--- a line that looks like a header
+++ b/and/another.py
+from turbopump import auth
diff --git a/src/turbopump/auth/link.py b/src/turbopump/auth/link.py
new file mode 100644
--- /dev/null
+++ b/src/turbopump/auth/link.py
@@ -0,0 +1,2 @@
+class DenyAll:
+    pass
diff --git a/tests/unit/auth/test_link.py b/tests/unit/auth/test_link.py
deleted file mode 100644
--- a/tests/unit/auth/test_link.py
+++ /dev/null
@@ -1 +0,0 @@
-pass
"""


def test_files_of_a_patch_are_found_with_their_lines() -> None:
    found = [(file.path, file.package, file.is_new, file.added, file.removed) for file in touched(PATCH)]
    assert found == [
        ("src/turbopump/broker/server.py", "broker", False, 2, 1),
        ("src/turbopump/auth/link.py", "auth", True, 2, 0),
        ("tests/unit/auth/test_link.py", "tests", False, 0, 1),
    ]


def test_files_of_the_own_package_and_tests_do_not_count() -> None:
    text = report(touched(PATCH), ["src/turbopump/auth"])
    assert "1 files outside its own package" in text
    assert "1 files of its own package" in text
    assert "1 files of tests, documentation and tools" in text


def test_without_an_own_package_every_source_file_counts() -> None:
    assert "2 files outside its own package" in report(touched(PATCH), [])


def test_a_package_is_named_two_levels_deep() -> None:
    patch = PATCH.replace("broker/server.py", "broker/produce/deep/kinds.py")
    assert touched(patch)[0].package == "broker/produce"
