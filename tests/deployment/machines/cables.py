"""The cables between the machines: one process that forwards IP packets between their devices.

`python cables.py DESCRIPTOR...` gets the TUN device of each machine, in the order of their
addresses. A line of JSON on standard input sets a link, and is answered with an empty line:
`[one, other, delay in seconds each way, share of packets that are lost]`; a cut link loses all.
"""

import heapq
import json
import os
import random
import select
import sys
import time
from contextlib import suppress

_MAX_PACKET = 65535
# Packets that are read from one device before the others have their turn.
_TURN = 64


def forward(devices: list[int]) -> None:
    """Forward packets until standard input ends."""
    links: dict[tuple[int, int], tuple[float, float]] = {}
    late: list[tuple[float, int, int, bytes]] = []  # (due, number, receiver, packet)
    senders = {device: place for place, device in enumerate(devices)}
    number = 0
    poll = select.epoll()
    for descriptor in (*devices, sys.stdin.fileno()):
        poll.register(descriptor, select.EPOLLIN)
    while True:
        wait = max(0.0, late[0][0] - time.monotonic()) if late else None
        for descriptor, _ in poll.poll(wait):
            if descriptor not in senders:
                line = sys.stdin.readline()
                if not line:
                    return
                one, other, delay, loss = json.loads(line)
                links[one, other] = links[other, one] = delay, loss
                print(flush=True)
                continue
            sender = senders[descriptor]
            for packet in _packets(descriptor):
                receiver = packet[19] - 1  # by the last byte of the IPv4 address
                if packet[0] >> 4 != 4 or not 0 <= receiver < len(devices):
                    continue
                delay, loss = links.get((sender, receiver), (0.0, 0.0))
                if loss and random.random() < loss:
                    continue
                if delay:
                    number += 1
                    due = time.monotonic() + delay
                    heapq.heappush(late, (due, number, receiver, packet))
                else:
                    _send(devices[receiver], packet)
        now = time.monotonic()
        while late and late[0][0] <= now:
            _, _, receiver, packet = heapq.heappop(late)
            _send(devices[receiver], packet)


def _packets(device: int) -> list[bytes]:
    packets: list[bytes] = []
    with suppress(BlockingIOError):
        while len(packets) < _TURN:
            packets.append(os.read(device, _MAX_PACKET))
    return packets


def _send(device: int, packet: bytes) -> None:
    with suppress(OSError):  # a full queue, or a device that is down, loses packets
        os.write(device, packet)


if __name__ == "__main__":
    forward([int(descriptor) for descriptor in sys.argv[1:]])
