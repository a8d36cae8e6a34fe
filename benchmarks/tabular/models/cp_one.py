"""One member."""

from functools import partial

from models import cp

build = partial(cp.build, n_members=1)
