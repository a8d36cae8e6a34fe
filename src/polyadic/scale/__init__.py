"""Tables larger than memory: read in batches, from files or from anything that yields batches."""

from polyadic.scale.predicting import predict
from polyadic.scale.sources import Source, open_source

__all__ = ["Source", "open_source", "predict"]
