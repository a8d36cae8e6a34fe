"""Developers: 5,594 answers, 19 numbers and 1 category; who works remotely."""

from functools import partial

import mixed

TASK = "binary"

load = partial(mixed.read, "stackoverflow", TASK)
