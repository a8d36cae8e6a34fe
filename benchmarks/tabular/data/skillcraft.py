"""SkillCraft (UCI): 3,338 games, 19 numbers."""

from functools import partial

import uci

TASK = "regression"

load = partial(uci.read, "skillcraft")
