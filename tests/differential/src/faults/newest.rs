//! What is other in the C provider of rdma-core 65 than in that of 44.

use std::mem::offset_of;
use std::ops::Range;

use rdma_core_sys::bindings::{
    IBV_ACCESS_ZERO_BASED, IBV_WC_EX_WITH_DLID_PATH_BITS, IBV_WR_ATOMIC_CMP_AND_SWP,
    IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_BIND_MW, ibv_device_attr,
};

use super::completions::{completes, differs_only_by};
use super::{Effect, Fault, INVALID, creation, only};
use crate::compare::{Difference, Event};
use crate::program::{Command, Element, Slot, Step};

/// Faults that it does not have any more.
pub const RIGHTED: &[&str] = &[
    "get_context is that of an older interface: no mask of what the program understands, 16 bytes \
               less of an answer",
    "regions cannot be registered anew",
    "the number of entries in the program's attributes is doubled",
    "exhausted RNR retries are reported as fatal error",
    "receives with immediate are all said to be of a send (plain interface), or all of a write (extended)",
    "numbers of work requests so large that sizes overflow make a small queue",
    "completion queues of the first generation may have an odd number of slots",
];

/// The line of an event with another of its values.
fn replaced(event: &Event<'_>, name: &str, value: &str) -> String {
    let word = |word: &str| match word.split_once('=') {
        Some((known, _)) if known == name => format!("{name}={value}"),
        _ => word.to_owned(),
    };
    event.line.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

/// Whether a line is of a command that has a queue of a queue pair in error flushed.
fn is_flush(event: &Event<'_>) -> bool {
    event.is_ioctl("ex_modify_qp")
        && event.number("attr_mask") == Some(1)
        && (event.number("driver.sq_flush"), event.number("driver.rq_flush")) != (Some(0), Some(0))
}

/// Whether a line is of a completion of work that was flushed for no fault of its own.
fn is_flushed(line: &str) -> bool {
    (line.starts_with("wc ") || line.starts_with("current ")) && line.contains(" status=5 ")
}

/// Whether a queue pair was created for sends without elements.
fn has_no_elements(difference: &Difference<'_>, slot: Slot) -> bool {
    matches!(creation(difference, slot), Some(Step::CreateQp { cap, .. }) if cap.send_sge == 0)
}

/// Whether a queue pair with a shared receive queue has been destroyed.
fn has_left_shared(difference: &Difference<'_>) -> bool {
    let before = &difference.program[..difference.step.min(difference.program.len())];
    before.iter().enumerate().any(|(number, step)| {
        let Step::DestroyQp { qp: destroyed } = step else { return false };
        before[..number]
            .iter()
            .any(|step| matches!(step, Step::CreateQp { qp, srq: Some(_), .. } if qp == destroyed))
    })
}

/// Whether the C provider completes a work request in this step that this project's does not.
fn completes_more(difference: &Difference<'_>) -> bool {
    let rest = difference.c_after.iter().take_while(|line| !line.starts_with("step "));
    let completions = [difference.c.line]
        .into_iter()
        .chain(rest.copied())
        .map(Event::parse)
        .filter(|event| matches!(event.kind, "wc" | "current"));
    let ours = || difference.before.iter().chain([&difference.ours.line]).chain(difference.after);
    completions.map(|event| event.text("wr_id")).any(|id| !ours().any(|line| completes(line, id)))
}

/// Whether work is posted.
fn posts(difference: &Difference<'_>) -> bool {
    matches!(difference.step(), Some(Step::PostSend { .. } | Step::PostRecv { .. } | Step::BindMw { .. }))
}

/// Bytes of a slot of a completion queue on the third generation.
const SLOT: i64 = 64;
/// Slots in a page.
const PAGE_ENTRIES: i64 = 64;

/// Faults that it has in addition.
pub const FAULTS: &[Fault] = &[
    Fault {
        name: "completion queues of the third generation have no slot for the end of a page of which the device is not \
               told at once",
        matches: |difference, _| {
            let entries = match *difference.step()? {
                Step::CreateCq { entries, .. } | Step::ResizeCq { entries, .. } => i64::from(entries),
                Step::CreateCqEx { entries, .. } => entries.into(),
                _ => return None,
            };
            let ours = &difference.ours;
            let (due, old) = (creation::slots(difference, entries).max(4), ((entries + 2) & !1).max(4));
            // The ring's memory is registered first, and may be of as many pages all the same.
            let slots = |event: &Event<'_>| match event.text("name") {
                "reg_mr" => Some(event.number("length")? / SLOT),
                "create_cq" => event.number("1.cqe"),
                "resize_cq" => event.number("cqe"),
                // A queue that is large enough is not resized.
                _ => (event.line == "resize_cq result=0").then_some(old),
            };
            let (size, theirs) = (slots(ours)?, slots(&difference.c)?);
            let pages = |slots: i64| (slots + PAGE_ENTRIES - 1) / PAGE_ENTRIES;
            let smaller = difference.generation == 3
                && due != old
                && pages(size) == pages(due)
                && pages(theirs) == pages(old);
            smaller.then_some(Effect::Ends)
        },
    },
    Fault {
        name: "a completion queue whose ring has the size already keeps the number of entries that it had, though \
               another was asked for",
        matches: |difference, _| {
            let Step::ResizeCq { entries, .. } = *difference.step()? else { return None };
            let said = |event: &Event<'_>| (event.kind == "cq").then(|| event.number("cqe"))?;
            let kept = difference.generation == 3
                && said(&difference.ours) == Some(i64::from(entries))
                && said(&difference.c)? != i64::from(entries);
            kept.then_some(Effect::Values)
        },
    },
    Fault {
        name: "the device is told of the end of a page of completions though more have come",
        matches: |difference, _| {
            let (ours, c) = (&difference.ours, &difference.c);
            let progress = |event: &Event<'_>| event.kind == "shadow" && event.number("word") == Some(0);
            let told = difference.generation == 3
                && matches!(difference.step(), Some(Step::Poll { .. } | Step::PollEx { .. }))
                && progress(c)
                && c.number("value")? % PAGE_ENTRIES == 0;
            if !told {
                return None;
            }
            if !progress(ours) || ours.text("cq") != c.text("cq") {
                return Some(Effect::Extra);
            }
            // What is before the first slot is the last one.
            let before = c.number("value")? - 1;
            let held_back = ours.number("value") == Some(before) || before < 0;
            held_back.then_some(Effect::Values)
        },
    },
    Fault {
        name: "the request for a queue pair is 16 bytes longer than the kernel's, of zeros",
        matches: |difference, _| {
            const MORE: &str = " 1000.more=00000000000000000000000000000000";
            let longer = difference.c.is_ioctl("create_qp")
                && difference.c.line.contains(MORE)
                && difference.c.line.replace(MORE, "") == difference.ours.line;
            longer.then_some(Effect::Values)
        },
    },
    Fault {
        name: "a queue pair with a shared receive queue is said to have receives of its own, also if it was not created",
        matches: |difference, history| {
            let Some(Step::CreateQp { srq: Some(_), cap, .. }) = difference.step() else { return None };
            let (ours, c) = (&difference.ours, &difference.c);
            let failed = difference.before.last().is_some_and(|line| line.starts_with("create_qp errno="));
            let right = if failed { (cap.recv_wr, cap.recv_sge) } else { (0, 0) };
            let told = (ours.number("recv_wr"), ours.number("recv_sge"));
            let said = ours.kind == "cap"
                && told == (Some(right.0.into()), Some(right.1.into()))
                && only(difference, &["recv_wr", "recv_sge"]);
            // What is asked for shows in a command that fails: in others the answer is in its place.
            let asked = ours.is_ioctl("create_qp")
                && ours.number("result") == Some(-1)
                && (ours.number("8.max_recv_wr"), c.number("8.max_recv_wr")) == (Some(4), Some(1));
            if asked {
                return differs_only_by(difference, history, &replaced(c, "8.max_recv_wr", "0x4"));
            }
            said.then_some(Effect::Values)
        },
    },
    Fault {
        name: "path bits of a completion cannot be asked for",
        matches: |difference, _| {
            let Some(Step::CreateCqEx { wc_flags, .. }) = difference.step() else { return None };
            let refused = wc_flags & u64::from(IBV_WC_EX_WITH_DLID_PATH_BITS) != 0
                && difference.c.line == "create_cq_ex errno=95";
            refused.then_some(Effect::Ends)
        },
    },
    Fault {
        name: "the number of an address handle is cut to 17 bits",
        matches: |difference, _| {
            let (ours, c) = (&difference.ours, &difference.c);
            let cut = difference.generation == 3
                && ours.kind == "wqe"
                && matches!(difference.step(), Some(Step::PostSend { .. }))
                && only(difference, &["q3"])
                && ours.number("q3")? & !(0xff << 17) == c.number("q3")?;
            cut.then_some(Effect::Ends)
        },
    },
    Fault {
        name: "receives are said to be sends or writes by the extended interface",
        matches: |difference, history| {
            let (ours, c) = (&difference.ours, &difference.c);
            let wrong = c.kind == "current"
                && ours.kind == "current"
                && ours.number("opcode")? >= 128
                && matches!(c.number("opcode"), Some(0 | 1));
            if !wrong {
                return None;
            }
            differs_only_by(difference, history, &replaced(c, "opcode", ours.text("opcode")))
        },
    },
    Fault {
        name: "the extended interface does not say that a receive has invalidated a key",
        matches: |difference, history| {
            let (ours, c) = (&difference.ours, &difference.c);
            let flags = ours.number("flags")?;
            let unsaid = (ours.kind, c.kind) == ("current", "current")
                && flags & 8 != 0
                && c.number("flags") == Some(flags & !8);
            if unsaid {
                differs_only_by(difference, history, &replaced(c, "flags", ours.text("flags")))
            } else {
                None
            }
        },
    },
    Fault {
        name: "a kind of window that does not exist, or not on the device, is left to the kernel to refuse",
        matches: |difference, _| {
            let c = &difference.c;
            let refused = matches!(difference.step(), Some(Step::AllocMw { kind, .. })
                    if *kind != 1 && matches!(difference.ours.line, "alloc_mw errno=22" | "alloc_mw errno=95"));
            match c.kind {
                _ if !refused => None,
                // It counts where the device is to refuse one of those to come.
                "ioctl" if c.is_ioctl("alloc_mw") && c.number("result") == Some(-1) => {
                    let before = &difference.program[..difference.step];
                    let refusal =
                        before.iter().rfind(|step| matches!(step, Step::Fail { .. } | Step::FailNoMore));
                    let counts = matches!(refusal, Some(Step::Fail { command: Command::AllocMw, .. }));
                    Some(if counts { Effect::Ends } else { Effect::Extra })
                }
                // The kernel may find something else wrong.
                "alloc_mw" if c.number("errno")? > 0 => Some(Effect::Values),
                _ => None,
            }
        },
    },
    Fault {
        name: "a device without shared receive queues is said to have ones of some size",
        matches: |difference, history| {
            const SIZES: Range<usize> = 2 * offset_of!(ibv_device_attr, max_srq_wr)
                ..2 * (offset_of!(ibv_device_attr, max_srq_sge) + size_of::<i32>());
            let (ours, c) = (&difference.ours, &difference.c);
            if difference.generation == 3 || (ours.kind, c.kind) != ("device", "device") {
                return None;
            }
            let [ours, told] = [ours.text("attr"), c.text("attr")];
            let without = ours.get(SIZES).is_some_and(|sizes| sizes.bytes().all(|digit| digit == b'0'));
            if !without || told.get(SIZES)? == &ours[SIZES] {
                return None;
            }
            let mut right = told.to_owned();
            right.replace_range(SIZES, &ours[SIZES]);
            differs_only_by(difference, history, &replaced(c, "attr", &right))
        },
    },
    Fault {
        name: "the bytes of an atomic operation are not told",
        matches: |difference, history| {
            let (ours, c) = (&difference.ours, &difference.c);
            let untold = ours.kind == c.kind
                && matches!(ours.kind, "wc" | "current")
                && matches!(ours.number("opcode"), Some(3 | 4))
                && (ours.number("byte_len"), c.number("byte_len")) == (Some(8), Some(0));
            if untold { differs_only_by(difference, history, &replaced(c, "byte_len", "8")) } else { None }
        },
    },
    Fault {
        name: "atomic operations of other than one element of 8 bytes, on memory that is not aligned, or where a \
               queue pair has no elements, are taken",
        matches: |difference, _| {
            let Some(Step::PostSend { qp, list }) = difference.step() else { return None };
            let ours = &difference.ours;
            let send = list.get(usize::try_from(ours.number("bad_wr")?).ok()?)?;
            let wrong = !matches!(send.elements[..], [Element { length: 8, .. }])
                || !send.remote.offset.is_multiple_of(8)
                || has_no_elements(difference, *qp);
            let refused = ours.kind == "post_send"
                && ours.number("result") == Some(INVALID)
                && matches!(send.opcode, IBV_WR_ATOMIC_CMP_AND_SWP | IBV_WR_ATOMIC_FETCH_AND_ADD);
            (refused && wrong).then_some(Effect::Ends)
        },
    },
    Fault {
        name: "whether a region counts its addresses from zero is not noted when it is registered anew",
        matches: |difference, _| {
            let (ours, c) = (&difference.ours, &difference.c);
            let refused = |event: &Event<'_>| event.number("result") == Some(INVALID);
            let region = match difference.step()? {
                Step::BindMw { bind, .. } if ours.kind == "bind_mw" => bind.mr,
                Step::PostSend { list, .. } if ours.kind == "post_send" => {
                    let index = ours.number("bad_wr").or(c.number("bad_wr"))?;
                    let send = list.get(usize::try_from(index).ok()?)?;
                    (send.opcode == IBV_WR_BIND_MW).then_some(send.bind.mr)?
                }
                _ => return None,
            };
            let mut changes =
                difference.program[..difference.step].iter().rev().filter_map(|step| match step {
                    Step::ReregMr { mr, flags, access, .. } if *mr == region && flags & 4 != 0 => {
                        Some(*access)
                    }
                    _ => None,
                });
            let from_zero = changes.next()? & IBV_ACCESS_ZERO_BASED != 0;
            let wrong = if from_zero { refused(ours) && !refused(c) } else { refused(c) && !refused(ours) };
            wrong.then_some(Effect::Ends)
        },
    },
    Fault {
        name: "a receive that a destroyed queue pair took from a shared queue is completed by what is in its freed memory",
        matches: |difference, _| {
            let polls = matches!(difference.step(), Some(Step::Poll { .. } | Step::PollEx { .. }));
            let completed = difference.generation == 3
                && polls
                && has_left_shared(difference)
                && (difference.c.line == "died code=139" || completes_more(difference));
            completed.then_some(Effect::Ends)
        },
    },
    Fault {
        name: "a receive that has failed is said to be of a write on the third generation",
        matches: |difference, history| {
            let (ours, c) = (&difference.ours, &difference.c);
            let said = difference.generation == 3
                && (ours.kind, c.kind) == ("wc", "wc")
                && ours.number("status")? != 0
                && (ours.number("opcode"), c.number("opcode")) == (Some(128), Some(129));
            if said { differs_only_by(difference, history, &replaced(c, "opcode", "128")) } else { None }
        },
    },
    Fault {
        name: "what is posted to a queue pair in error is never flushed on the third generation, where the kernel \
               that is asked for it cannot do it",
        matches: |difference, _| {
            let asked = difference.generation == 3
                && posts(difference)
                && is_flush(&difference.c)
                && !is_flush(&difference.ours);
            asked.then_some(Effect::Ends)
        },
    },
    Fault {
        name: "on the third generation a flush completes the oldest requests, also those that were done and not \
               signaled, and none that was posted after it: as many as those never complete",
        matches: |difference, _| {
            let (ours, c) = (&difference.ours, &difference.c);
            if difference.generation != 3 {
                return None;
            }
            let lost = match (ours.kind, c.kind) {
                ("poll_cq", "poll_cq") => {
                    let all = difference.after.get(..usize::try_from(ours.number("result")?).ok()?)?;
                    let more = all.get(usize::try_from(c.number("result")?).ok()?..)?;
                    !more.is_empty() && all.iter().filter(|line| is_flushed(line)).count() >= more.len()
                }
                ("start_poll" | "next_poll", "start_poll" | "next_poll") => {
                    ours.number("result") == Some(0)
                        && c.number("result") == Some(libc::ENOENT.into())
                        && difference.after.first().is_some_and(|line| is_flushed(line))
                }
                _ => false,
            };
            lost.then_some(Effect::Ends)
        },
    },
];
