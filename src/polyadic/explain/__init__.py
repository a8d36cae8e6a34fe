"""Explanations in closed form: what each column does to a prediction, alone and with others."""

from polyadic.explain.anova import Sobol, Term, Terms, interactions, sobol, terms
from polyadic.explain.coefficients import Coefficients, Product, coefficient, coefficients
from polyadic.explain.compare import Comparison, compare
from polyadic.explain.effect import Effect
from polyadic.explain.effects import Effects, PartialDependence, effects, partial_dependence
from polyadic.explain.shapley import Shapley, ShapleyInteractions, shapley, shapley_interactions
from polyadic.explain.words import describe, in_words

__all__ = [
    "Coefficients",
    "Comparison",
    "Effect",
    "Effects",
    "PartialDependence",
    "Product",
    "Shapley",
    "ShapleyInteractions",
    "Sobol",
    "Term",
    "Terms",
    "coefficient",
    "coefficients",
    "compare",
    "describe",
    "effects",
    "in_words",
    "interactions",
    "partial_dependence",
    "shapley",
    "shapley_interactions",
    "sobol",
    "terms",
]
