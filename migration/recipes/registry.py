"""The courses of each recipe."""

from collections.abc import Mapping

from migration.plan import DOUBLE_READ, DOUBLE_WRITE, MIRROR
from migration.recipes import double_read, double_write, mirror
from migration.recipes.course import Courses

RECIPE_COURSES: Mapping[str, Courses] = {
    MIRROR: mirror.COURSES,
    DOUBLE_WRITE: double_write.COURSES,
    DOUBLE_READ: double_read.COURSES,
}


def courses_of(recipe: str) -> Courses:
    """Raises KeyError: no recipe has that name."""
    return RECIPE_COURSES[recipe]
