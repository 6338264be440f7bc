# SPDX-License-Identifier: Apache-2.0
"""Imported first by tests that compute with NumPy: where another python3 stands before Debian's, which has the package python3-numpy, the
test starts again with that."""
import os
import sys

try:
    import numpy  # noqa: F401
except ImportError:
    if sys.executable == "/usr/bin/python3" or not os.path.exists("/usr/bin/python3"):
        sys.exit("%s needs NumPy: apt-get install python3-numpy" % os.path.basename(sys.argv[0]))
    os.execv("/usr/bin/python3", ["/usr/bin/python3"] + sys.argv)
