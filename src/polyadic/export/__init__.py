"""Models for other systems: as ONNX graphs, and as queries in SQL."""

from polyadic.export.onnx_model import onnx_inputs, to_onnx
from polyadic.export.pipelines import register_converters
from polyadic.export.sql_model import SqlModel, to_sql

__all__ = ["SqlModel", "onnx_inputs", "register_converters", "to_onnx", "to_sql"]
