# SPDX-License-Identifier: Apache-2.0
"""Plans of parallel training of large models.

    >>> import zplan
    >>> plan = zplan.plan("gpt_tiny.dz", gpus=4)
    >>> plan.json["degrees"]["data"]
    4
    >>> plan.to_pandas()            # where pandas is installed

Answers hold the JSON of the command `zplan`, errors are exceptions that say file, line and column. Ctrl-C ends a search.
"""
import sys

if sys.version_info < (3, 9):  # noqa: UP036 - what follows does not compile there
    raise ImportError("zplan needs Python 3.9 or newer, and this is %d.%d" % sys.version_info[:2])

from ._answers import Answer, Model, Plan, Table
from ._calls import call, explain, machines, models, parse, plan, price, report, verify, version
from ._errors import Infeasible, Message, ZplanError

__all__ = [
    "Answer", "Infeasible", "Message", "Model", "Plan", "Table", "ZplanError",
    "call", "explain", "machines", "models", "parse", "plan", "price", "report", "verify", "version",
]
__version__ = version()
