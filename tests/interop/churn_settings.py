"""How long clients come and go, and from which seed."""

from __future__ import annotations

import os
import random

SECONDS = float(os.environ.get("CHURN_SECONDS", "60"))
SEED = int(os.environ.get("CHURN_SEED") or random.randrange(1_000_000))
