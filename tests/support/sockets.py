# SPDX-License-Identifier: Apache-2.0
"""What the processes of a session listen on, from the kernel's tables: each socket by its number in /proc/PID/fd."""
import ipaddress
import os
import socket
import struct

import harness

LISTEN = 0x0A  # state of a TCP socket


def session_of(leader):
    """Processes of a session, and what they started."""
    parents = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/stat" % entry, encoding="utf-8", errors="replace") as file:
                parents[int(entry)] = int(file.read().rsplit(")", 1)[1].split()[1])
        except OSError:
            pass  # it ended meanwhile
    found = set(harness.in_session(leader))
    while True:
        more = {process for process, parent in parents.items() if parent in found} - found
        if not more:
            return sorted(found)
        found |= more


def numbers_of(process):
    """Of its sockets, as the kernel's tables name them."""
    found = set()
    for entry in os.listdir("/proc/%d/fd" % process):
        try:
            target = os.readlink("/proc/%d/fd/%s" % (process, entry))
        except OSError:
            continue  # closed meanwhile
        if target.startswith("socket:["):
            found.add(target[len("socket:["):-1])
    return found


def address(text):
    """Of a table's "0100007F:1F90": words in the order of the machine."""
    words = struct.pack("=%dI" % (len(text) // 8), *(int(text[i:i + 8], 16) for i in range(0, len(text), 8)))
    return ipaddress.ip_address(socket.inet_ntop(socket.AF_INET if len(words) == 4 else socket.AF_INET6, words))


def open_sockets(leader):
    """[(process, table, own address, address of the peer, does it take messages of anybody?)] of a session."""
    found = []
    for process in session_of(leader):
        try:
            numbers = numbers_of(process)
            for table in ("tcp", "tcp6", "udp", "udp6", "raw", "raw6"):
                with open("/proc/%d/net/%s" % (process, table), encoding="ascii") as file:
                    for line in file.read().splitlines()[1:]:
                        words = line.split()
                        if words[9] in numbers:
                            waits = int(words[3], 16) == LISTEN if table.startswith("tcp") else True
                            found.append((process, table, address(words[1].split(":")[0]), address(words[2].split(":")[0]), waits))
        except OSError:
            pass  # it ended meanwhile
    return found
