"""All copies from Kafka into the engine: those for all groups, and those for one. They are followed and ended together."""

from common.config.view import ConfigView
from kafka_bridge.copy_in.cluster import ClusterCopiers
from kafka_bridge.copy_in.copier import CopyTools
from kafka_bridge.copy_in.copies import Copier, InCopies
from kafka_bridge.copy_in.plan import CopyPlan, plans_of
from kafka_bridge.shared_read.copier import SharedCopiers
from kafka_bridge.shared_read.plan import shared_plans_of


def all_copies(view: ConfigView, tools: CopyTools) -> InCopies:
    """Begins at once."""
    clusters, groups = ClusterCopiers(), SharedCopiers()

    def new_copier(plan: CopyPlan, tools: CopyTools) -> Copier:
        return clusters.copy(plan, tools) if plan.membership is None else groups.copy(plan, tools)

    return InCopies(view, tools, _plans, new_copier)


def _plans(view: ConfigView) -> dict[str, CopyPlan]:
    return plans_of(view) | shared_plans_of(view)
