"""The console's own database: schema, migrations, and one module per thing that is kept."""
