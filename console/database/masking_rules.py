"""The rules that hide fields of messages by role, as administrators have set them."""

from sqlalchemy import delete, func, insert, select

from console.database.action_log import ActionLog, Actor
from console.database.console_database import ConsoleDatabase
from console.database.schema import masking_rules
from console.errors import InvalidForm, RequestConflict
from console.roles import Role
from console.security.masking import Mask, MaskingRule, mask_of

RULES_MAX = 500


class MaskingRules:
    def __init__(self, database: ConsoleDatabase, log: ActionLog) -> None:
        self._database, self._log = database, log

    def all(self) -> list[MaskingRule]:
        """By topics and field."""
        table = masking_rules.c
        with self._database.read() as connection:
            rows = connection.execute(select(masking_rules).order_by(table.topics, table.field, table.id)).all()
        return [MaskingRule(row.id, row.topics, row.field, Role.named(row.role)) for row in rows]

    def mask(self, topic: str, role: Role) -> Mask:
        """The fields of a topic that a role does not see now. Raises DatabaseUnavailable: then nothing may be shown."""
        return mask_of(self.all(), topic, role)

    def add(self, actor: Actor, rule: MaskingRule) -> None:
        """It counts from the next page on. Raises InvalidForm when there are RULES_MAX."""
        value = {"topics": rule.topics, "field": rule.field, "role": rule.role.label}
        with self._database.write() as connection:
            if connection.execute(select(func.count()).select_from(masking_rules)).scalar_one() >= RULES_MAX:
                raise InvalidForm({"": f"There are {RULES_MAX} rules, which is the most: remove one."})
            connection.execute(insert(masking_rules).values(**value))
            self._log.record(connection, actor, "add masking rule", f"topics {rule.topics}", None, value)

    def remove(self, actor: Actor, rule_id: int) -> None:
        """Raises RequestConflict when somebody has removed it already."""
        own = masking_rules.c.id == rule_id
        with self._database.write() as connection:
            row = connection.execute(select(masking_rules).where(own)).one_or_none()
            if row is None:
                raise RequestConflict("This rule was removed meanwhile.")
            connection.execute(delete(masking_rules).where(own))
            old = {"topics": row.topics, "field": row.field, "role": row.role}
            self._log.record(connection, actor, "remove masking rule", f"topics {row.topics}", old, None)
