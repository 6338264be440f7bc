# SPDX-License-Identifier: Apache-2.0
"""libzplan by ctypes: where it is, its functions, and one call as a value."""
from __future__ import annotations

import ctypes
import os
import threading
from typing import NamedTuple, Optional, Sequence

ABI = 1
HOME = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_home")
WORDS = ctypes.POINTER(ctypes.c_char_p)


class Raw(NamedTuple):
    """An answer of the library as texts."""

    status: int
    json: str
    messages: str
    notes: str


def places() -> list[str]:
    """Where libzplan is looked for, in this order: $ZPLAN_LIBZPLAN alone, the wheel, the system."""
    wish = os.environ.get("ZPLAN_LIBZPLAN")
    return [wish] if wish else [os.path.join(HOME, "lib", "libzplan.so.1"), "libzplan.so.1"]


def load() -> ctypes.CDLL:
    """Opens the library. ImportError says why it cannot be used."""
    refusals = []
    for place in places():
        if os.sep in place and not os.path.exists(place):
            refusals.append("%s is not there" % place)
            continue
        try:
            library = ctypes.CDLL(place)
        except OSError as error:
            refusals.append(str(error))
            continue
        return declare(library, place)
    raise ImportError("libzplan cannot be opened: %s" % "; ".join(refusals))


def declare(library: ctypes.CDLL, place: str) -> ctypes.CDLL:
    """Types of the functions of zplan.h. ImportError where it is another interface."""
    library.zplan_abi.restype = ctypes.c_int
    if library.zplan_abi() != ABI:
        raise ImportError("%s has interface %d, and this module needs %d" % (place, library.zplan_abi(), ABI))
    library.zplan_version.restype = ctypes.c_char_p
    library.zplan_call.restype = ctypes.c_void_p
    library.zplan_call.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, WORDS]
    library.zplan_status.restype = ctypes.c_int
    for name in ("zplan_json", "zplan_messages", "zplan_notes"):
        getattr(library, name).restype = ctypes.c_char_p
    for name in ("zplan_status", "zplan_json", "zplan_messages", "zplan_notes", "zplan_free"):
        getattr(library, name).argtypes = [ctypes.c_void_p]
    library.zplan_free.restype = None
    library.zplan_leave.argtypes = [ctypes.POINTER(ctypes.c_int)]
    library.zplan_leave.restype = None
    return library


LIBRARY = load()


def encode(text: Optional[str], what: str) -> Optional[bytes]:
    """A text for C. Names of files may hold bytes that are no UTF-8."""
    if text is None:
        return None
    data = os.fsencode(text) if what == "path" else text.encode("utf-8")
    if b"\0" in data:
        raise ValueError("%s has a zero byte" % what)
    return data


def ask(verb: bytes, path: Optional[bytes], text: Optional[bytes], words: Sequence[bytes]) -> Raw:
    """One call, in this thread."""
    list_of = (ctypes.c_char_p * (len(words) + 1))(*words, None)
    answer = LIBRARY.zplan_call(verb, path, text, ctypes.cast(list_of, WORDS))
    try:
        texts = [LIBRARY.zplan_json(answer), LIBRARY.zplan_messages(answer), LIBRARY.zplan_notes(answer)]
        return Raw(LIBRARY.zplan_status(answer), *(text.decode("utf-8", "replace") for text in texts))
    finally:
        LIBRARY.zplan_free(answer)


def call(verb: str, path: Optional[str], text: Optional[str], options: Sequence[str]) -> Raw:
    """One call. In the main thread it runs alongside, so that Ctrl-C ends its search at once and raises KeyboardInterrupt."""
    words = (encode(verb, "the verb"), encode(path, "path"), encode(text, "the text"), [encode(word, "an option") for word in options])
    if threading.current_thread() is not threading.main_thread():
        return ask(*words)
    leave, ended, answers, failures = ctypes.c_int(0), threading.Event(), [], []

    def work() -> None:
        LIBRARY.zplan_leave(ctypes.byref(leave))
        try:
            answers.append(ask(*words))
        except BaseException as failure:  # noqa: BLE001 - raised again below
            failures.append(failure)
        finally:
            ended.set()

    threading.Thread(target=work, name="zplan", daemon=True).start()
    try:
        ended.wait()
    except BaseException:
        leave.value = 1
        ended.wait()  # not join(), which returns at once after an interrupted one, before Python 3.13
        raise
    if failures:
        raise failures[0]
    return answers[0]


def version() -> str:
    """Of the library: "0.2.0"."""
    return LIBRARY.zplan_version().decode()
