"""Mirror: copiers fill the other side, in both directions."""

from migration.recipes.course import CUTTABLE, UNFENCE, UNFENCING, Aim, Course, Courses, PlanStep

_FENCING = (
    "policies", "sources", "tails", "gates", "fence", "fenced_everywhere", "sent", "quiet", "drained", "drained_tails",
)  # fmt: skip

COURSES: Courses = {
    "start": Course((PlanStep.PLANNED,), ("policies", "mark", "entries", "copy_in", "applied"), PlanStep.COPYING, "abort"),
    "verify": Course(
        (PlanStep.COPYING, PlanStep.VERIFIED), ("policies", "caught_up", "tails"), PlanStep.VERIFIED, "abort", is_compared=True
    ),
    "fence": Course(CUTTABLE, ("error_rate", *_FENCING), PlanStep.FENCED, "abort, or wait: it ends by itself"),
    "cut": Course(CUTTABLE, ("error_rate", *_FENCING, "switch", "followed"), PlanStep.CUT, "rollback"),
    "soak": Course((PlanStep.CUT,), ("policies", "tails", "copy_out"), PlanStep.SOAKING, "rollback"),
    "rollback": Course(
        (PlanStep.VERIFIED, PlanStep.FENCED, PlanStep.CUT, PlanStep.SOAKING),
        ("moved", "policies", "delayed", "dead_letters", "copy_out", "sources", "tails", "gates", "fence", "fenced_everywhere", "sent",
         "delayed_fenced", "quiet", "drained", "drained_tails", "switch", "followed", "no_copy_out", "lift"), PlanStep.COPYING,
        "verify and cut again", Aim.TO_KAFKA,
    ),
    "retire": Course(
        (PlanStep.SOAKING,), ("sources", "tails", "soaked", "error_rate", "no_copy_out", "no_copy_in", "unmark"), PlanStep.RETIRED,
        "none: a new plan",
    ),
    "abort": Course(
        (PlanStep.PLANNED, PlanStep.COPYING, *CUTTABLE), ("not_moved", "lift", "no_copy_in", "unmark"), PlanStep.ABORTED,
        "a new plan",
    ),
    UNFENCE: UNFENCING,
}  # fmt: skip
