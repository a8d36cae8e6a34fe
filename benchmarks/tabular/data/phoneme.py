"""Phonemes (ELENA): 5,404 sounds, 5 numbers; nasal or oral."""

from functools import partial

import mixed

TASK = "binary"

load = partial(mixed.read, "phoneme", TASK)
