"""Selects the native or the reference form of rows and of what is done with them."""

from typing import TYPE_CHECKING

from common.twins import use_native

NATIVE = use_native("migration.reconcile", "_rows", "_row_sets")
if NATIVE and not TYPE_CHECKING:
    from migration.reconcile._row_sets import chosen, differing, fold, holding, ordered
    from migration.reconcile._rows import rows_of_records, rows_of_stored
else:
    from migration.reconcile.row_sets import chosen, differing, fold, holding, ordered
    from migration.reconcile.rows import rows_of_records, rows_of_stored

__all__ = ["NATIVE", "chosen", "differing", "fold", "holding", "ordered", "rows_of_records", "rows_of_stored"]
