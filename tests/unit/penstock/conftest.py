import pytest
from click.testing import CliRunner

from penstock.__main__ import cli


@pytest.fixture
def run(tmp_path):
    """Run a command on a data directory with an empty configuration; the exit code has to be `code`."""
    (tmp_path / "config").mkdir()

    def run_it(*arguments, code=0, **options):
        result = CliRunner().invoke(cli, list(arguments), env={"PENSTOCK_DATA": str(tmp_path)}, **options)
        assert result.exit_code == code, result.output
        return result

    return run_it
