"""Completion events, solicited ones, and the asynchronous event of a queue pair in error."""

import select

import pyverbs.enums as e
from pyverbs.cq import CQ, CompChannel
from pyverbs.wr import SGE, SendWR

from loopback import Loopback, open_device, poll

WAIT = 5000  # milliseconds until an event is taken as lost
QUIET = 100  # milliseconds in which an event would have come


def readable(descriptor, milliseconds):
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(milliseconds))


def main():
    context = open_device()
    channel = CompChannel(context)
    sender = CQ(context, 64)
    receiver = CQ(context, 64, None, channel, 0)
    pair = Loopback(context, sender, receiver)

    def message(flags=0):
        pair.receive(wr_id=1, length=64)
        pair.send(wr_id=2, length=32, flags=e.IBV_SEND_SIGNALED | flags)
        poll(sender, 1)

    # One event for each time that the queue was armed, found by waiting for it.
    for _ in range(100):
        receiver.req_notify()
        message()
        channel.get_cq_event(receiver)
        poll(receiver, 1)
        receiver.ack_events(1)

    # Armed for solicited messages only: another one passes silently.
    receiver.req_notify(solicited_only=True)
    message()
    if hasattr(channel, "fd"):
        assert not readable(channel.fd, QUIET)
    message(e.IBV_SEND_SOLICITED)
    channel.get_cq_event(receiver)
    receiver.ack_events(1)
    poll(receiver, 2)

    # A write to where there is no memory is refused: the writer learns it from its completion,
    # the other side from an asynchronous event.
    own, other = pair.regions
    request = SendWR(9, e.IBV_WR_RDMA_WRITE, 1, 0, [SGE(own.buf, 8, own.lkey)], e.IBV_SEND_SIGNALED)
    request.set_wr_rdma(other.rkey, other.buf + 65536 + 4096)
    pair.left.post_send(request)
    completions = []
    while not completions:
        _, completions = sender.poll(1)
    assert completions[0].wr_id == 9 and completions[0].status == e.IBV_WC_REM_ACCESS_ERR, completions[0]
    event = context.get_async_event()
    assert event.event_type in (e.IBV_EVENT_QP_ACCESS_ERR, e.IBV_EVENT_QP_FATAL), event
    event.ack()


main()
print("events: good")
