"""Settings of every suite."""

from tests import properties

pytest_plugins = ["tests.again", "tests.quick"]

properties.load_profile()
