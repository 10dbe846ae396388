"""Double read: consumer groups read from both sides, then the writers move; each message is on one side only.

Nothing is copied for all groups, so there is nothing to compare, and no way back for messages: a rollback leads new
ones to Kafka again, and the groups read on in the engine what is there.
"""

from migration.recipes.course import CUTTABLE, UNFENCE, UNFENCING, Aim, Course, Courses, PlanStep

_GATES = ("groups_named", "policies", "sources", "groups_gate", "readable")
_FENCING = ("fence", "fenced_everywhere", "sent", "quiet")

COURSES: Courses = {
    # The dual reads first: a topic with its home in Kafka and without them would be copied for all groups.
    "start": Course(
        (PlanStep.PLANNED,), ("policies", "mark", "dual_reads", "dual_reads_applied", "entries", "applied"), PlanStep.COPYING, "abort"
    ),
    "verify": Course((PlanStep.COPYING, PlanStep.VERIFIED), ("policies", "groups_near", "readable"), PlanStep.VERIFIED, "abort"),
    "fence": Course(CUTTABLE, ("error_rate", *_GATES, *_FENCING), PlanStep.FENCED, "abort, or wait: it ends by itself"),
    "cut": Course(CUTTABLE, ("error_rate", *_GATES, *_FENCING, "switch", "followed"), PlanStep.CUT, "rollback"),
    "soak": Course((PlanStep.CUT,), ("kafka_drained",), PlanStep.SOAKING, "rollback"),
    "rollback": Course(
        (PlanStep.VERIFIED, PlanStep.FENCED, PlanStep.CUT, PlanStep.SOAKING),
        ("moved", "policies", "delayed", "dead_letters", "fence", "fenced_everywhere", "sent", "delayed_fenced", "quiet", "read_back",
         "switch", "followed", "rearm", "lift"), PlanStep.COPYING,
        "verify and cut again", Aim.TO_KAFKA,
    ),
    "retire": Course(
        (PlanStep.SOAKING,),
        ("soaked", "error_rate", "kafka_drained", "hidden_dead_letters", "leave", "applied", "acknowledged", "no_dual_reads", "unmark"),
        PlanStep.RETIRED, "none: a new plan",
    ),
    "abort": Course(
        (PlanStep.PLANNED, PlanStep.COPYING, *CUTTABLE),
        ("not_moved", "lift", "hidden_dead_letters", "leave", "applied", "acknowledged", "copy_start",
         "copy_start_applied", "no_dual_reads", "unmark"),
        PlanStep.ABORTED,
        "a new plan",
    ),
    UNFENCE: UNFENCING,
}  # fmt: skip
