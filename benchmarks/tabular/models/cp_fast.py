"""A fast preset: one member of fewer terms than the default."""

from functools import partial

from models import cp

SETTINGS = {"n_members": 1, "rank": 16}

build = partial(cp.build, **SETTINGS)
