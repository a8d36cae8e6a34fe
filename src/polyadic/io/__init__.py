"""Model files: safe files of arrays and JSON, and the parts of a fitted model in them.

Files and parts only: what belongs to an estimator is written by `polyadic.estimators.saving` and
read by `polyadic.estimators.loading`.
"""
