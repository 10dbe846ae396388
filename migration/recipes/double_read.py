"""Double read: consumer groups read from both sides. Not built yet: `start` is refused."""

from migration.recipes import mirror
from migration.recipes.course import Courses

COURSES: Courses = mirror.COURSES
