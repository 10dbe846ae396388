"""Recipes of plans: per recipe a module with its courses. `registry` has them by name."""
