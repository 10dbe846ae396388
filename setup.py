"""Builds the optional native modules and names the packages; everything else about the package is in setup.cfg.

setup.cfg can either find packages or list them; three of ours live in folders of another name (its `package_dir`), so they are
added to the found ones here: the contract's .thrift files, and the Python client with the two programs of the demo.

Every `_x.pyx` under the packages is an extension; so is every `x.py` with a `_x.pxd` whose first line is a directive of Cython, as module
`_x` (docs/design/0016-twins.md). Without a C compiler, or with PENSTOCK_PURE=1, the package installs without them and runs on the
references in pure Python. PENSTOCK_EXT=common.wire builds only the modules whose name contains that text, and PENSTOCK_CFLAGS
adds options of the compiler (scripts/sanitize). Debug information takes two fifths of the compiler's time, so modules have none;
PENSTOCK_CFLAGS=-g1 adds it.
"""

import os
import shutil
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext

PACKAGES = ("common", "engine", "kafka_bridge", "migration", "producer_proxy", "consumer_proxy", "pipeline", "bench")
MAPPED = ("penstock_thrift", "penstock_client", "penstock_client_examples")
ROOT = Path(__file__).parent


def sources() -> list[Path]:
    wanted = os.environ.get("PENSTOCK_EXT", "")
    found = [path.relative_to(ROOT) for package in PACKAGES for path in sorted((ROOT / package).rglob("*.pyx"))]
    found += [
        path.relative_to(ROOT)
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        if is_single(path)
    ]
    return [path for path in found if wanted in native_name(path)]


def is_single(path: Path) -> bool:
    """Whether a reference is the source of its native form, too."""
    return path.with_name(f"_{path.stem}.pxd").exists() and path.read_text().startswith("# cython: ")


def drop_outdated(single: Path) -> None:
    """Remove the C of a reference that is older than a declaration: Cython looks for those under the source's name."""
    made = single.with_suffix(".c")
    if made.exists() and any(each.stat().st_mtime > made.stat().st_mtime for each in single.parent.glob("*.pxd")):
        made.unlink()


def native_name(path: Path) -> str:
    """`x.py` and `_x.pyx` both become module `_x`."""
    return ".".join((*path.parts[:-1], "_" + path.stem.removeprefix("_")))


class VisibleBuild(build_ext):
    """Tells how many modules are built. The largest are begun first, so that no core is idle at the end.

    A wheel takes the modules that are built in place and up to date: compiling them again would take minutes.
    """

    def build_extensions(self) -> None:
        self.extensions.sort(key=lambda extension: -Path(extension.sources[0]).stat().st_size)
        self._built = 0
        super().build_extensions()

    def build_extension(self, extension: Extension) -> None:
        in_place = ROOT / self.get_ext_filename(extension.name)
        if not self.inplace and is_current(in_place, extension):
            made = Path(self.get_ext_fullpath(extension.name))
            made.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(in_place, made)
            return
        super().build_extension(extension)
        self._built += 1
        print(f"{self._built} of {len(self.extensions)} native modules: {extension.name}", flush=True)


def is_current(built: Path, extension: Extension) -> bool:
    """Whether a built module is newer than its C source and headers."""
    made_from = (*extension.sources, *extension.depends)
    return built.exists() and all(built.stat().st_mtime >= (ROOT / each).stat().st_mtime for each in made_from)


def extensions() -> list[Extension]:
    if os.environ.get("PENSTOCK_PURE"):
        return []
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    headers = [str(path) for path in sorted((ROOT / "common" / "native").glob("*.h"))]
    modules = [
        Extension(
            native_name(path),
            [str(path)],
            extra_compile_args=["-O3", "-g0", *os.environ.get("PENSTOCK_CFLAGS", "").split()],
            include_dirs=["common/native"],
            depends=headers,
        )
        for path in sources()
    ]
    for path in (each for each in sources() if each.suffix == ".py"):
        drop_outdated(path)
    directives = {"language_level": 3, "boundscheck": False, "wraparound": False}
    built = cythonize(modules, nthreads=os.cpu_count() or 1, compiler_directives=directives)
    for extension in built:
        extension.optional = True  # cythonize() drops the flag; without it an install fails where there is no compiler
    return built


def packages() -> list[str]:
    wanted = [pattern for name in (*PACKAGES, "controller", "console", "penstock") for pattern in (name, f"{name}.*")]
    return [*find_packages(str(ROOT), include=wanted), *MAPPED]


setup(
    packages=packages(),
    py_modules=["pyspark_penstock"],
    ext_modules=extensions(),
    cmdclass={"build_ext": VisibleBuild},
)
