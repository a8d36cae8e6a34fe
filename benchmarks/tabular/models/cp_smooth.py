"""The defaults without trees."""

from functools import partial

from models import cp

build = partial(cp.build, trees=False)
