"""Cell segmentation: 2,019 images, 56 numbers; well or poorly segmented."""

from functools import partial

import mixed

TASK = "binary"

load = partial(mixed.read, "cells", TASK)
