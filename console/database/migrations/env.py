"""Alembic's entry: runs the revisions on the connection that `ConsoleDatabase.migrate` passes."""

from alembic import context

from console.database.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    transactional_ddl=False,  # the caller's transaction holds all of it
)
context.run_migrations()
