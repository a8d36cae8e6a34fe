"""Model files: safe files of arrays and JSON, and the parts of a fitted model in them.

Files and parts only: what belongs to an estimator is added by `polyadic.estimators.saving` and
taken out by `polyadic.estimators.loading`.
"""
