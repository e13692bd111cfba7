#!/usr/bin/env python3
"""A remote shell over TCP for hosts that a test has made.

rsh.py serve FILE                writes to FILE when it listens; ends with its standard input
rsh.py [OPTION].. HOST COMMAND..  runs a command on a host, as ssh does: through its shell, with the
                                 command's output and status

Like ssh's, its connection notices nothing when a host vanishes, and what runs on a host outlives it.
"""

import os
import socket
import subprocess
import sys
import threading

PORT = 514


def serve(ready):
    listener = socket.create_server(("", PORT), backlog=16)
    with open(ready, "w") as file:
        file.write("listening\n")
    threading.Thread(target=accept, args=(listener,), daemon=True).start()
    sys.stdin.buffer.read()


def accept(listener):
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=run, args=(connection,), daemon=True).start()


def run(connection):
    with connection, connection.makefile("rb") as request:
        length = int(request.readline())
        command = request.read(length).decode()
        child = subprocess.Popen(
            ["/bin/sh", "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            while data := child.stdout.read1():
                connection.sendall(data)
            connection.sendall(bytes([child.wait() & 0xFF]))
        except OSError:
            # Whoever asked is gone; the command goes on.
            child.stdout.close()
            child.wait()


def ask(words):
    while words and words[0].startswith("-"):
        words.pop(0)
    host, command = words[0], " ".join(words[1:]).encode()
    # The last byte is the status.
    held = b""
    try:
        with socket.create_connection((host, PORT)) as connection:
            connection.sendall(b"%d\n" % len(command) + command)
            while data := connection.recv(1 << 16):
                os.write(1, held + data[:-1])
                held = data[-1:]
    except OSError as error:
        print(f"rsh.py: {host}: {error}", file=sys.stderr)
        return 255
    return held[0] if held else 255


if sys.argv[1] == "serve":
    serve(sys.argv[2])
else:
    sys.exit(ask(sys.argv[1:]))
