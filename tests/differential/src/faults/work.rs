//! Faults in posting.

use rdma_core_sys::bindings::{
    IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE,
    IBV_ACCESS_ZERO_BASED, IBV_QPT_UD, IBV_SEND_INLINE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND,
    IBV_WR_SEND_WITH_IMM,
};

use super::{Effect, Fault, INVALID, creation, only};
use crate::compare::Difference;
use crate::execute::arena;
use crate::program::{Element, Slot, Step};

/// What a window may allow, and what a program may ask for beside it.
const WINDOW_RIGHTS: u32 = IBV_ACCESS_LOCAL_WRITE
    | IBV_ACCESS_REMOTE_WRITE
    | IBV_ACCESS_REMOTE_READ
    | IBV_ACCESS_REMOTE_ATOMIC
    | IBV_ACCESS_ZERO_BASED;

/// Whether a queue pair was created for datagrams.
fn is_datagram(difference: &Difference<'_>, slot: Slot) -> bool {
    matches!(creation(difference, slot), Some(Step::CreateQp { kind: IBV_QPT_UD, .. }))
}

/// The elements of the work request that this project's provider refuses as invalid.
fn refused_elements<'a>(difference: &Difference<'a>) -> Option<&'a [Element]> {
    let ours = &difference.ours;
    if !ours.kind.starts_with("post_") || ours.number("result") != Some(INVALID) {
        return None;
    }
    let index = usize::try_from(ours.number("bad_wr")?).ok()?;
    match difference.program.get(difference.step)? {
        Step::PostSend { list, .. } => Some(&list.get(index)?.elements),
        Step::PostRecv { list, .. } | Step::PostSrqRecv { list, .. } => Some(&list.get(index)?.elements),
        _ => None,
    }
}

/// All of them.
pub const FAULTS: &[Fault] = &[
    Fault {
        name: "a receive without elements has the first element of another",
        matches: |difference, _| {
            let ours = &difference.ours;
            let empty = matches!(ours.kind, "rq" | "srq")
                && matches!(difference.step(), Some(Step::PostRecv { .. } | Step::PostSrqRecv { .. }))
                && ours.number("q0") == Some(0)
                && ours.number("q1").is_some_and(|word| word & i64::MAX == 0)
                && ours.number("q3").is_some_and(|word| word & i64::MAX == 0)
                && only(difference, &["q0", "q1"]);
            empty.then_some(Effect::Ends)
        },
    },
    Fault {
        name: "a doorbell is rung though nothing was posted",
        matches: |difference, _| {
            let c = &difference.c;
            let nothing = c.kind == "doorbell"
                && c.text("of") == "sq"
                && matches!(difference.step(), Some(Step::PostSend { .. } | Step::BindMw { .. }))
                && difference.ours.kind != "doorbell"
                && !difference.before.iter().any(|line| line.starts_with("wqe ") || line.starts_with("sq "));
            nothing.then_some(Effect::Extra)
        },
    },
    Fault {
        name: "a local invalidate does not wait for the operations before it",
        matches: |difference, _| {
            const LOCAL_FENCE: i64 = 1 << 61;
            let (ours, c) = (&difference.ours, &difference.c);
            let unfenced = ours.kind == "wqe"
                && only(difference, &["q3"])
                && ours.number("q3")? >> 32 & 0x3f == 0x0a
                && ours.number("q3")? == c.number("q3")? | LOCAL_FENCE;
            unfenced.then_some(Effect::Values)
        },
    },
    Fault {
        name: "what is posted to a queue pair that the hardware has put into error is not flushed",
        matches: |difference, _| {
            let ours = &difference.ours;
            let flushed = ours.is_ioctl("ex_modify_qp")
                && ours.number("attr_mask") == Some(1)
                && ours.number("driver.sq_flush")? + ours.number("driver.rq_flush")? == 1
                && matches!(
                    difference.step(),
                    Some(Step::PostSend { .. } | Step::PostRecv { .. } | Step::BindMw { .. })
                )
                && difference.c.kind != "ioctl";
            flushed.then_some(Effect::Ends)
        },
    },
    Fault {
        name: "an element of 2 GiB or more is taken, its length runs into the valid bit",
        matches: |difference, _| {
            let long = refused_elements(difference)?.iter().any(|element| element.length >= 1 << 31);
            long.then_some(Effect::Ends)
        },
    },
    Fault {
        name: "elements that make 4 GiB together are taken, of their length 32 bits are counted",
        matches: |difference, _| {
            // Of a receive they may.
            let sends = difference.ours.kind == "post_send";
            let lengths = refused_elements(difference)?.iter().map(|element| u64::from(element.length));
            (sends && lengths.sum::<u64>() > u32::MAX.into()).then_some(Effect::Ends)
        },
    },
    Fault {
        name: "a queue pair for datagrams takes requests that it cannot carry out",
        matches: |difference, _| {
            let Some(Step::PostSend { qp, list }) = difference.step() else { return None };
            let refused =
                difference.ours.kind == "post_send" && difference.ours.number("result") == Some(INVALID);
            let opcode = list.get(usize::try_from(difference.ours.number("bad_wr")?).ok()?)?.opcode;
            let wrong = is_datagram(difference, *qp) && !matches!(opcode, IBV_WR_SEND | IBV_WR_SEND_WITH_IMM);
            (refused && wrong).then_some(Effect::Ends)
        },
    },
    Fault {
        name: "the command that has a queue flushed gives the driver no room for an answer",
        matches: |difference, _| {
            let same = difference.ours.is_ioctl("ex_modify_qp")
                && difference.c.is_ioctl("ex_modify_qp")
                && difference.c.number("driver.sq_flush")? + difference.c.number("driver.rq_flush")? == 1
                && difference.c.values_are_among(&difference.ours, &[])
                && difference.ours.values_are_among(&difference.c, &["out.more"]);
            same.then_some(Effect::Values)
        },
    },
    Fault {
        name: "a list of receives to a queue pair in error is flushed once for each",
        matches: |difference, _| {
            let c = &difference.c;
            let again = matches!(difference.step(), Some(Step::PostRecv { list, .. }) if list.len() > 1)
                && c.is_ioctl("ex_modify_qp")
                && c.number("driver.rq_flush") == Some(1)
                && difference.c_before.last().is_some_and(|line| line.contains(" driver.rq_flush=0x1 "))
                && difference.ours.kind == "post_recv";
            again.then_some(Effect::Ends)
        },
    },
    Fault {
        name: "a flush is asked for though nothing was posted",
        matches: |difference, _| {
            let ours = &difference.ours;
            let nothing = match difference.step()? {
                Step::PostSend { list, .. } => {
                    ours.kind == "post_send" && (list.is_empty() || ours.number("bad_wr") == Some(0))
                }
                Step::BindMw { .. } => ours.kind == "bind_mw" && ours.number("result")? > 0,
                _ => return None,
            };
            let asked =
                difference.c.is_ioctl("ex_modify_qp") && difference.c.number("driver.sq_flush") == Some(1);
            (nothing && asked).then_some(Effect::Ends)
        },
    },
    Fault {
        name: "a write or read without elements sends what its list happens to point to",
        matches: |difference, _| {
            let c = &difference.c;
            let stale = arena::stale();
            let taken = matches!(difference.step(), Some(Step::PostSend { list, .. })
                    if list.iter().any(|send| send.stale && send.elements.is_empty()))
                && difference.ours.kind == "wqe"
                && c.number("q0") == Some(stale.addr as i64)
                && difference.ours.number("q0") == Some(0)
                && only(difference, &["q0", "q1"]);
            taken.then_some(Effect::Ends)
        },
    },
    Fault {
        name: "a window of the first type is bound to more than its region, or with rights that no window has",
        matches: |difference, _| {
            let Some(Step::BindMw { bind, .. }) = difference.step() else { return None };
            let wrong = bind.length > arena::LENGTH as u64 || bind.access & !WINDOW_RIGHTS != 0;
            let refused = difference.ours.kind == "bind_mw"
                && difference.ours.number("result") == Some(INVALID)
                && difference.ours.text("rkey") != difference.c.text("rkey");
            (wrong && refused).then_some(Effect::Ends)
        },
    },
    Fault {
        name: "on the first generation an immediate overwrites inline data, or makes a request longer than the \
               device reads",
        matches: |difference, _| {
            let Some(Step::PostSend { list, .. }) = difference.step() else { return None };
            let ours = &difference.ours;
            let send = list.get(usize::try_from(ours.number("bad_wr")?).ok()?)?;
            let refused = difference.generation == 1
                && ours.kind == "post_send"
                && ours.number("result") == Some(INVALID)
                && matches!(send.opcode, IBV_WR_RDMA_WRITE_WITH_IMM | IBV_WR_SEND_WITH_IMM)
                && (send.flags & IBV_SEND_INLINE != 0 || send.elements.len() == 3);
            refused.then_some(Effect::Ends)
        },
    },
];
