//! Faults in what is asked of the kernel, and in what comes of it.

use rdma_core_sys::bindings::IBV_QPS_RESET;

use super::{Effect, Fault, INVALID, NOT_SUPPORTED, is_of_cq, only};
use crate::compare::{Difference, Event};
use crate::execute::LEFT_OPEN;
use crate::program::Step;

/// `wc_flags` of time stamps.
const TIMESTAMPS: u64 = 1 << 7 | 1 << 11;
/// Slots of the largest completion queue.
const LARGEST_CQ: i64 = 1_048_575;
/// Bytes of a page of a ring.
const PAGE: i64 = 4096;
/// Bytes of a shadow area.
const SHADOW: i64 = 64;

/// Slots of a completion queue of so many entries: one is never used, and on the second generation
/// a completion may take two; on the third two are never used, and no queue is of one page.
pub(super) fn slots(difference: &Difference<'_>, entries: i64) -> i64 {
    match difference.generation {
        2 => 2 * (entries + 1),
        3 if matches!(entries, 61 | 62) => 66,
        3 => (entries + 3) & !1,
        _ => (entries + 2) & !1,
    }
}

/// All of them.
pub const FAULTS: &[Fault] = &[
    Fault {
        name: "get_context is that of an older interface: no mask of what the program understands, 16 bytes \
               less of an answer",
        matches: |difference, _| {
            let (ours, c) = (&difference.ours, &difference.c);
            let mut without: Vec<_> =
                ours.line.split(' ').filter(|word| !word.starts_with("1000.comp_mask=")).collect();
            for word in &mut without {
                if word.starts_with("1001.more=") {
                    *word = word.trim_end_matches('0');
                }
            }
            let theirs = c.line.split(' ').map(|word| match word.starts_with("1001.more=") {
                true => word.trim_end_matches('0'),
                false => word,
            });
            let same = ours.is_ioctl("get_context") && theirs.eq(without.iter().copied());
            same.then_some(Effect::Values)
        },
    },
    Fault {
        name: "the context's own protection domain is made as it is opened, not with its first object",
        matches: |difference, _| {
            let (ours, c) = (&difference.ours, &difference.c);
            // Of all objects of the context the first.
            let makes_it =
                |event: &Event<'_>| event.is_ioctl("alloc_pd") && event.number("out.handle") == Some(1);
            if makes_it(c) && ours.is_ioctl("alloc_async_event") {
                return Some(Effect::Extra);
            }
            (makes_it(ours) && c.is_ioctl("alloc_pd")).then_some(Effect::Missing)
        },
    },
    Fault {
        name: "the context's own protection domain is given back just before the kernel would take it at the close",
        matches: |difference, _| {
            let c = &difference.c;
            // Of all objects of the context the first.
            let extra = c.is_ioctl("dealloc_pd") && c.number("0") == Some(1);
            (extra && difference.ours.kind == "close_device").then_some(Effect::Extra)
        },
    },
    Fault {
        name: "the push page of a queue pair that cannot be destroyed stays mapped, and keeps the device open",
        matches: |difference, _| {
            (difference.c.kind == LEFT_OPEN && difference.ours.kind != LEFT_OPEN).then_some(Effect::Extra)
        },
    },
    Fault {
        name: "page counts of a program's region are whatever was in memory",
        matches: |difference, _| {
            const COUNTS: [&str; 3] = ["driver.cq_pages", "driver.rq_pages", "driver.sq_pages"];
            let ours = &difference.ours;
            let unset = ours.is_ioctl("reg_mr")
                && ours.number("driver.reg_type") == Some(0)
                && COUNTS.iter().all(|name| ours.number(name) == Some(0))
                && only(difference, &COUNTS);
            unset.then_some(Effect::Values)
        },
    },
    Fault {
        name: "memory of queues is not in whole pages: a shadow area's 64 bytes share a page with others",
        matches: |difference, _| {
            let (ours, c) = (&difference.ours, &difference.c);
            let (Some(whole), Some(part)) = (ours.number("length"), c.number("length")) else { return None };
            let shared = ours.is_ioctl("reg_mr")
                && matches!(ours.number("driver.reg_type"), Some(1..=3))
                && only(difference, &["length"])
                && part % PAGE == SHADOW
                && whole == part - SHADOW + PAGE;
            shared.then_some(Effect::Values)
        },
    },
    Fault {
        name: "every address handle is preceded by a question for the GID of its index",
        matches: |difference, _| {
            let asks = difference.c.is_ioctl("query_gid_entry")
                && matches!(difference.step(), Some(Step::CreateAh { .. }));
            let asked_before = difference.ours.is_ioctl("query_gid_entry");
            (asks && !asked_before).then_some(Effect::Extra)
        },
    },
    Fault {
        name: "changes of state go by the extended command, for push pages that no device offers yet",
        matches: |difference, _| {
            let same = difference.ours.is_ioctl("modify_qp")
                && difference.c.is_ioctl("ex_modify_qp")
                && difference.ours.values_are_among(&difference.c, &["name"])
                && ["driver.sq_flush", "driver.rq_flush", "driver.rsvd"]
                    .iter()
                    .all(|name| difference.c.number(name) == Some(0));
            same.then_some(Effect::Values)
        },
    },
    Fault {
        name: "the number of entries in the program's attributes is doubled",
        matches: |difference, _| {
            let (ours, c) = (difference.ours.number("cqe")?, difference.c.number("cqe")?);
            let doubled = difference.ours.kind == "attributes"
                && matches!(difference.step(), Some(Step::CreateCqEx { .. }))
                && c == (2 * (ours + 1)).max(4);
            doubled.then_some(Effect::Values)
        },
    },
    Fault {
        name: "a queue can be resized to less than one entry",
        matches: |difference, _| {
            let refused = difference.generation > 1
                && matches!(difference.step(), Some(Step::ResizeCq { entries, .. }) if *entries < 1)
                && difference.ours.line == "resize_cq result=22";
            refused.then_some(Effect::Ends)
        },
    },
    Fault {
        name: "the device is said to have larger completion queues than can be created",
        matches: |difference, _| {
            let (ours, c) = (&difference.ours, &difference.c);
            let fits = |entries| slots(difference, entries) <= LARGEST_CQ;
            let largest = ours.number("max_cqe")?;
            let told = ours.kind == "device"
                && only(difference, &["max_cqe"])
                && !fits(c.number("max_cqe")?)
                && fits(largest)
                && !fits(largest + 1);
            told.then_some(Effect::Values)
        },
    },
    Fault {
        name: "an address handle of a GID that is not there gets the error number -1, of whatever it is said to be",
        matches: |difference, _| {
            let (ours, c) = (&difference.ours, &difference.c);
            let asked = difference.c_before.last().is_some_and(|line| {
                line.starts_with("ioctl name=query_gid_entry") && line.contains(" result=-1 ")
            });
            if c.line != "create_ah errno=-1" || !asked {
                return None;
            }
            match (ours.is_ioctl("create_ah"), ours.kind) {
                (true, _) if ours.number("result") == Some(-1) => Some(Effect::Missing),
                (false, "create_ah") if ours.number("errno")? > 0 => Some(Effect::Values),
                _ => None,
            }
        },
    },
    Fault {
        name: "regions cannot be registered anew",
        matches: |difference, _| {
            let (ours, c) = (&difference.ours, &difference.c);
            match (ours.is_ioctl("rereg_mr"), ours.kind, c.number("errno")) {
                (true, _, Some(NOT_SUPPORTED)) if ours.number("result") == Some(-1) => Some(Effect::Missing),
                (true, _, Some(NOT_SUPPORTED)) => Some(Effect::Ends),
                (false, "rereg_mr", Some(NOT_SUPPORTED)) if ours.number("result") != Some(0) => {
                    Some(Effect::Values)
                }
                _ => None,
            }
        },
    },
    Fault {
        name: "the memory of a completion queue that was not created is given back in the order in which it was taken",
        matches: |difference, history| {
            let handle = difference.c.number("0")?;
            let first = matches!(difference.step(), Some(Step::CreateCq { .. } | Step::CreateCqEx { .. }))
                && difference.c.is_ioctl("dereg_mr")
                && difference.ours.is_ioctl("dereg_mr")
                && is_of_cq(difference, handle);
            first.then(|| history.early.insert(handle)).map(|_| Effect::Extra)
        },
    },
    Fault {
        name: "completion queues are made, or at least begun, that are larger than the hardware has them",
        matches: |difference, _| {
            let entries = match *difference.step()? {
                Step::CreateCq { entries, .. } | Step::ResizeCq { entries, .. } => i64::from(entries),
                Step::CreateCqEx { entries, .. } => entries.into(),
                _ => return None,
            };
            let slots = slots(difference, entries);
            let ours = &difference.ours;
            let told = ours.number("errno").or(ours.number("result"));
            let refused = slots > LARGEST_CQ && matches!(told, Some(INVALID | NOT_SUPPORTED));
            refused.then_some(Effect::Ends)
        },
    },
    Fault {
        name: "a kind of window that does not exist is said to be not supported",
        matches: |difference, _| {
            let unknown = matches!(difference.step(), Some(Step::AllocMw { kind, .. }) if !matches!(kind, 1 | 2))
                && difference.ours.line == "alloc_mw errno=22"
                && difference.c.line == "alloc_mw errno=95";
            unknown.then_some(Effect::Values)
        },
    },
    Fault {
        name: "time stamps are promised by every device, whether it has them or not",
        matches: |difference, _| {
            let Some(Step::CreateCqEx { wc_flags, .. }) = difference.step() else { return None };
            let refused = wc_flags & TIMESTAMPS != 0 && difference.ours.line == "create_cq_ex errno=95";
            let too_late = difference.c.line == "create_cq_ex errno=22";
            refused.then_some(if too_late { Effect::Values } else { Effect::Ends })
        },
    },
    Fault {
        name: "of two things that are wrong with a completion queue, another is told",
        matches: |difference, _| {
            let refused = difference.ours.line == "create_cq_ex errno=95"
                && difference.c.line == "create_cq_ex errno=22";
            refused.then_some(Effect::Values)
        },
    },
    Fault {
        name: "the program's attributes of a queue pair that was not created are changed",
        matches: |difference, _| {
            let failed = difference.before.last().is_some_and(|line| line.starts_with("create_qp errno="));
            let changed =
                failed && difference.ours.kind == "cap" && only(difference, &["send_wr", "recv_wr"]);
            changed.then_some(Effect::Values)
        },
    },
    Fault {
        name: "numbers of work requests so large that sizes overflow make a small queue",
        matches: |difference, _| {
            let Some(Step::CreateQp { cap, .. }) = difference.step() else { return None };
            let overflows =
                cap.send_wr.max(cap.recv_wr) >= 1 << 28 && difference.ours.line == "create_qp errno=22";
            overflows.then_some(Effect::Ends)
        },
    },
    Fault {
        name: "unknown flags of a completion queue are taken",
        matches: |difference, _| {
            let unknown = matches!(difference.step(), Some(Step::CreateCqEx { flags: Some(flags), .. }) if flags & !3 != 0)
                && difference.ours.line == "create_cq_ex errno=95";
            unknown.then_some(Effect::Ends)
        },
    },
    Fault {
        name: "a reset of a queue pair goes to the kernel, which cannot do it and moves it to the error state",
        matches: |difference, _| {
            let (ours, c) = (&difference.ours, &difference.c);
            let fresh = matches!(difference.step(), Some(Step::ModifyQp { change, .. }) if change.state == IBV_QPS_RESET)
                && matches!(ours.line, "modify_qp result=0" | "modify_qp result=95")
                && (c.is_ioctl("ex_modify_qp") || c.is_ioctl("modify_qp"))
                && c.number("qp_state") == Some(0);
            fresh.then_some(Effect::Ends)
        },
    },
    Fault {
        name: "completion queues of the first generation may have an odd number of slots",
        matches: |difference, _| {
            let (ours, c) = (&difference.ours, &difference.c);
            let odd = difference.generation == 1
                && ours.is_ioctl("create_cq")
                && only(difference, &["1.cqe", "6.cqe", "1001.cq_size"])
                && ours.number("1.cqe")? == c.number("1.cqe")? + 1
                && ours.number("1.cqe")? % 2 == 0;
            odd.then_some(Effect::Ends)
        },
    },
];
