"""Image segmentation (UCI): 2,310 patches, 19 numbers; seven materials."""

from functools import partial

import mixed

TASK = "multiclass"

load = partial(mixed.read, "segment", TASK)
