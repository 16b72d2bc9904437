"""Settings of every suite."""

from tests import properties

properties.load_profile()
