"""Explanations in closed form: what each column does to a prediction, alone and with others."""

from polyadic.explain.anova import Effects, Interactions, Term, effects, interactions
from polyadic.explain.words import in_words

__all__ = ["Effects", "Interactions", "Term", "effects", "in_words", "interactions"]
