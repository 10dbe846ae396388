"""Sockets of threads in a process whose sockets gevent has replaced."""

import subprocess
import sys

CODE = """
from gevent import monkey
monkey.patch_all()
import socket, sys
from common.address import Address, connect
from common.unpatched import UnpatchedSockets, original

plain = original("socket", "socket")
ours = plain(socket.AF_INET, socket.SOCK_STREAM)
ours.bind(("127.0.0.1", 0)); ours.listen()
path = sys.argv[1]
file = plain(socket.AF_UNIX, socket.SOCK_STREAM)
file.bind(path); file.listen()
done = []

def talk():
    for server, address in ((ours, Address("127.0.0.1", ours.getsockname()[1])), (file, Address(path))):
        sock = connect(address, 5.0, UnpatchedSockets)
        server.accept()[0].sendall(b"hello")
        done.append((type(sock) is plain, sock.gettimeout(), sock.recv(5)))
        sock.close()
    ours.close()
    try:
        connect(address._replace(host="127.0.0.1", port=1), 5.0, UnpatchedSockets)
    except OSError as error:
        done.append(type(error).__name__)

lock = original("_thread", "allocate_lock")()
lock.acquire()
original("_thread", "start_new_thread")(lambda: (talk(), lock.release()), ())
lock.acquire(timeout=20)
print(done)
"""


def test_a_threads_connections_are_no_sockets_of_the_loop(tmp_path):
    line = [sys.executable, "-c", CODE, str(tmp_path / "file.sock")]
    done = subprocess.run(line, capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.strip() == str([(True, 5.0, b"hello")] * 2 + ["ConnectionRefusedError"])
