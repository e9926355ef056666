"""Run every measurement of this folder, each in a process of its own: `make bench`.

python -m tests.speed [NAME ...]   (a name as in bench_NAME.py; none: all)
"""

import os
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent


def main() -> None:
    names = sys.argv[1:] or sorted(path.stem.removeprefix("bench_") for path in FOLDER.glob("bench_*.py"))
    library = FOLDER.parents[1] / "workflow" / "lib"
    environment = os.environ | {"PYTHONPATH": f"{library}{os.pathsep}{FOLDER.parents[1]}"}
    for name in names:
        print(f"\n== {name}", flush=True)
        subprocess.run([sys.executable, str(FOLDER / f"bench_{name}.py")], env=environment, check=True)


if __name__ == "__main__":
    main()
