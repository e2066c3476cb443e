"""Which worker of a product somebody talks to."""

from __future__ import annotations

from typing import Protocol

import psutil

from tests.support.raw_client import RawClient


def workers_of(parent: int) -> list[psutil.Process]:
    """The server processes below a parent, oldest first."""
    found = []
    try:
        children = psutil.Process(parent).children()
    except psutil.NoSuchProcess:
        return []
    for child in children:
        try:
            if "server.worker" in child.cmdline():
                found.append(child)
        except psutil.NoSuchProcess:
            continue
    return sorted(found, key=lambda each: each.pid)


class Parent(Protocol):
    """A product that was started without a switch (`tests.support.product.Product`)."""

    pid: int


def worker_with(product: Parent, client: RawClient) -> int:
    """The process at the other end of a client's socket."""
    port = client.socket.local_address[1]
    for worker in workers_of(product.pid):
        for connection in worker.net_connections("tcp"):
            if connection.raddr and connection.raddr.port == port:
                return worker.pid
    raise AssertionError("nobody has the other end")
