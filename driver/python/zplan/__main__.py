# SPDX-License-Identifier: Apache-2.0
"""The command of the wheel: `zplan ...` and `python -m zplan ...`."""
import os
import shutil
import sys


def main() -> None:
    """Becomes the command that the wheel has, or the one on the path."""
    command = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_home", "bin", "zplan")
    if not os.path.exists(command):
        command = shutil.which("zplan") or ""
    if not command or os.path.realpath(command) == os.path.realpath(sys.argv[0]):
        sys.exit("zplan: this module has no command with it: the wheel has, and so has the Debian package")
    os.execv(command, ["zplan"] + sys.argv[1:])


if __name__ == "__main__":
    main()
