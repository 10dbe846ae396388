"""Double write: producer proxies write to both sides. What lies before, the copier has brought to the engine.

`verify` sets a first fence, behind which the topics get their secondary: so both sides have the same messages from the
first record of Kafka on. Each later fence leaves when no journal holds a message of its topics.
"""

from migration.recipes.course import CUTTABLE, UNFENCE, Aim, Course, Courses, PlanStep

_FENCING = (
    "journals", "divergence", "sources", "shape", "fence", "fenced_everywhere", "copied", "sent", "quiet", "counts",
)  # fmt: skip
_PAIRING = (
    "sources", "tails", "gates", "fence", "fenced_everywhere", "sent", "quiet", "drained", "drained_tails", "pair",
    "paired_everywhere", "lift", "followed",
)  # fmt: skip

COURSES: Courses = {
    "start": Course(
        (PlanStep.PLANNED,), ("policies", "one_writer", "journals", "mark", "entries", "applied"), PlanStep.COPYING, "abort"
    ),
    "verify": Course(
        (PlanStep.COPYING, PlanStep.VERIFIED), ("policies", "journals", "delayed", "caught_up", *_PAIRING, "divergence"), PlanStep.VERIFIED,
        "abort", Aim.PAIR, is_compared=True,
    ),
    "fence": Course(
        CUTTABLE, ("error_rate", "policies", *_FENCING), PlanStep.FENCED, "abort, or wait: it ends by itself", Aim.SWAP_TO_ENGINE
    ),
    "cut": Course(
        CUTTABLE, ("one_writer", "error_rate", "policies", *_FENCING, "switch", "followed"), PlanStep.CUT, "rollback", Aim.SWAP_TO_ENGINE
    ),
    "soak": Course((PlanStep.CUT,), ("policies", "journals", "divergence", "shape"), PlanStep.SOAKING, "rollback"),
    "rollback": Course(
        (PlanStep.VERIFIED, PlanStep.FENCED, PlanStep.CUT, PlanStep.SOAKING),
        ("moved", "policies", "delayed", "dead_letters", *_FENCING, "switch", "followed", "lift"), PlanStep.COPYING,
        "verify and cut again", Aim.SWAP_TO_KAFKA,
    ),
    "retire": Course(
        (PlanStep.SOAKING,), ("soaked", "error_rate", *_FENCING, "unpair", "followed", "unmark"), PlanStep.RETIRED,
        "none: a new plan", Aim.UNPAIR,
    ),
    "abort": Course(
        (PlanStep.PLANNED, PlanStep.COPYING, *CUTTABLE),
        ("not_moved", "unpair_fenced", "lift", "journals", "divergence", "fence", "fenced_everywhere", "copied", "sent",
         "quiet", "rebase", "unpair", "unmark"),
        PlanStep.ABORTED, "a new plan", Aim.UNPAIR,
    ),
    UNFENCE: Course(tuple(PlanStep), ("unpair_fenced", "lift"), PlanStep.VERIFIED, "fence again"),
}  # fmt: skip
