"""A fast preset: fewer members and epochs than the default."""

from functools import partial

from models import cp

SETTINGS = {"n_members": 2, "max_epochs": 20}

build = partial(cp.build, **SETTINGS)
