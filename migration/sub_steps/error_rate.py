"""The gate on the error rate: sends of the plan's topics that have failed in the last minutes."""

from collections.abc import Mapping

from common.ops.send_pages import TopicSendCounts
from migration.facts import Facts, Rules
from migration.states import Answer, PlanState, Refuse
from migration.sub_steps.sub_step import SHOWN_MAX, SubStep, shown

ERROR_RATE = "error-rate"
"""The gate, which an operator may accept."""


def rate_of(counts: TopicSendCounts) -> float:
    """The failed ones among all sends with an outcome."""
    return counts.failed / max(1, counts.failed + counts.stored)


def told(name: str, counts: TopicSendCounts) -> str:
    """A topic's rate with its numbers."""
    return f"{counts.failed:,} of {counts.failed + counts.stored:,} sends to {name} ({100 * rate_of(counts):.2g} %)"


def _error_rate(state: PlanState, facts: Facts, rules: Rules) -> Answer:
    if ERROR_RATE in rules.accepted or rules.error_rate >= 1:
        return None
    if facts.errors.silent:
        return Refuse(
            f"the error rate is not known of {shown(facts.errors.silent)}: let this machine reach the page, or use "
            f"--accept {ERROR_RATE}"
        )
    worst = sorted(facts.errors.topics.items(), key=lambda each: rate_of(each[1]), reverse=True)
    above = [told(name, each) for name, each in worst if each.failed and rate_of(each) > rules.error_rate]
    if not above:
        return None
    more = f" and of {len(above) - SHOWN_MAX:,} more topics" if len(above) > SHOWN_MAX else ""
    return Refuse(
        f"{', '.join(above[:SHOWN_MAX])}{more} have failed in the last 5 minutes, at most {100 * rules.error_rate:g} % may: "
        f"find out why (/readyz of the proxies), wait until they are older, or use --accept {ERROR_RATE}"
    )


SUB_STEPS: Mapping[str, SubStep] = {
    "error_rate": SubStep(
        _error_rate, "checks that at most {errors} of the sends to a topic have failed in the last 5 minutes", "at once",
        asks_errors=True,
    ),
}  # fmt: skip
