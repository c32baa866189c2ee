//! Faults in completions and events.

use super::{Effect, Fault, History, explain, is_of_cq, only};
use crate::compare::{Difference, Event};
use crate::program::Step;

/// What polling says when nothing is there.
const ENOENT: i64 = libc::ENOENT as i64;

/// Whether a completion is of a send queue.
fn is_send(completion: &Event<'_>) -> bool {
    completion.number("opcode").is_some_and(|opcode| opcode & 128 == 0)
}

/// Whether the C provider may give back that registration now: a ring of a CQ that there was before a resize.
fn is_old_ring(difference: &Difference<'_>, handle: i64) -> bool {
    let at_due_time = matches!(
        difference.step(),
        Some(Step::Poll { .. } | Step::PollEx { .. } | Step::ResizeCq { .. } | Step::DestroyCq { .. }) | None
    );
    at_due_time && is_of_cq(difference, handle)
}

/// What the C provider has done so far in the step that is being run.
fn c_in_step<'a>(difference: &Difference<'a>) -> &'a [&'a str] {
    let began = difference.c_before.iter().rposition(|line| line.starts_with("step "));
    &difference.c_before[began.unwrap_or(0)..]
}

/// Whether a line is of the completion of that work request.
pub fn completes(line: &str, id: &str) -> bool {
    (line.starts_with("wc ") || line.starts_with("current ")) && line.contains(&format!(" wr_id={id} "))
}

/// What explains a difference where the C provider's line were this one, if anything is left to explain.
pub fn differs_only_by(difference: &Difference<'_>, history: &mut History, fixed: &str) -> Option<Effect> {
    let rest = difference.with_c(fixed);
    if rest.ours.line == rest.c.line {
        return Some(Effect::Values);
    }
    explain(&rest, history).map(|(_, effect)| effect)
}

/// All of them.
pub const FAULTS: &[Fault] = &[
    Fault {
        name: "fields of a completion that it does not set keep what was in the program's memory",
        matches: |difference, _| {
            let c = &difference.c;
            let untouched = |name: &str, poison: i64| {
                difference.ours.text(name) == c.text(name)
                    || c.number(name) == Some(poison) && difference.ours.number(name) == Some(0)
            };
            let flags = c.number("flags")?;
            let unset = c.kind == "wc"
                && only(
                    difference,
                    &["vendor_err", "imm", "src_qp", "pkey_index", "slid", "sl", "path_bits", "flags"],
                )
                && (flags & 6 != 0 || untouched("imm", 0xa5a5_a5a5))
                && (c.number("status") != Some(0) || untouched("vendor_err", 0xa5a5_a5a5))
                && untouched("pkey_index", 0xa5a5)
                && untouched("slid", 0xa5a5)
                && untouched("sl", 0xa5)
                && untouched("path_bits", 0xa5)
                // A datagram that was sent is said to have come with a GRH, from nowhere.
                && (difference.ours.text("flags") == c.text("flags")
                    && difference.ours.text("src_qp") == c.text("src_qp")
                    || difference.ours.number("flags") == Some(flags & !1) && is_send(c));
            unset.then_some(Effect::Values)
        },
    },
    Fault {
        name: "a datagram that was sent is said to have come with a GRH",
        matches: |difference, _| {
            let c = &difference.c;
            let said = c.kind == "current"
                && only(difference, &["flags", "src_qp"])
                && difference.ours.number("flags") == Some(c.number("flags")? & !1)
                && is_send(c);
            said.then_some(Effect::Values)
        },
    },
    Fault {
        name: "exhausted RNR retries are reported as fatal error",
        matches: |difference, history| {
            let (ours, c) = (&difference.ours, &difference.c);
            let taken = ours.number("status") == Some(13)
                && c.number("status") == Some(19)
                && ours.number("vendor_err") == Some(0x1_000b);
            if !taken {
                return None;
            }
            differs_only_by(difference, history, &c.line.replace(" status=19 ", " status=13 "))
        },
    },
    Fault {
        name: "a bind that was flushed for what it may not is said to be a protection error",
        matches: |difference, history| {
            let (ours, c) = (&difference.ours, &difference.c);
            let bind = (ours.number("status"), ours.number("opcode")) == (Some(6), Some(5))
                && ours.number("vendor_err") == Some(0x1_0002);
            if !bind || c.number("status") != Some(4) {
                return None;
            }
            differs_only_by(difference, history, &c.line.replace(" status=4 ", " status=6 "))
        },
    },
    Fault {
        name: "a destruction that is refused has given up the rings from before a resize, with what is in them",
        matches: |difference, _| {
            let c = &difference.c;
            let destroyed = difference.c_after.iter().find(|line| line.starts_with("ioctl name=destroy_cq "));
            let given_up = matches!(difference.step(), Some(Step::DestroyCq { .. }))
                && c.is_ioctl("dereg_mr")
                && is_old_ring(difference, c.number("0")?)
                && destroyed.is_some_and(|line| line.contains(" result=-1 "));
            given_up.then_some(Effect::Ends)
        },
    },
    Fault {
        name: "polling gives back the memory of finished rings, by system calls",
        matches: |difference, history| {
            let (ours, c) = (&difference.ours, &difference.c);
            let handle = c.number("0");
            if c.is_ioctl("dereg_mr") && handle.is_some_and(|handle| is_old_ring(difference, handle)) {
                history.early.extend(handle);
                return Some(Effect::Extra);
            }
            let late = ours.is_ioctl("dereg_mr") && history.early.remove(&ours.number("0")?);
            late.then_some(Effect::Missing)
        },
    },
    Fault {
        name: "the completion of a flush that finds its queue empty ends a poll: what is behind it comes only when \
               asked again",
        matches: |difference, history| {
            let (ours, c) = (&difference.ours, &difference.c);
            let (kind, result) = (ours.kind, ours.number("result"));
            // The third has one for each work request.
            if difference.generation == 3 {
                return None;
            }
            match (kind, c.kind) {
                ("poll_cq", "poll_cq") if c.number("result")? < result? && c.number("result")? >= 0 => {
                    *history.owed(difference.step) += result? - c.number("result")?;
                    Some(Effect::Values)
                }
                ("wc", "poll_cq") if *history.owed(difference.step) > 0 => {
                    *history.owed(difference.step) -= c.number("result")?;
                    Some(Effect::Extra)
                }
                ("next_poll", "next_poll") if (result, c.number("result")) == (Some(0), Some(ENOENT)) => {
                    Some(Effect::Values)
                }
                ("start_poll" | "current", "start_poll") if ours.kind == "current" || result == Some(0) => {
                    Some(Effect::Extra)
                }
                _ => None,
            }
        },
    },
    Fault {
        name: "what is behind the completion of a flush that finds its queue empty, in a ring from before a resize, is \
               given up with the ring",
        matches: |difference, _| {
            let ours = &difference.ours;
            let is_completion = matches!(ours.kind, "wc" | "current");
            let polls = matches!(difference.step(), Some(Step::Poll { .. } | Step::PollEx { .. }));
            if difference.generation == 3 || !polls {
                return None;
            }
            let id = ours.text("wr_id");
            let comes = |lines: &[&str]| lines.iter().any(|line| completes(line, id));
            let given_back = |line: &&str| {
                let handle = line.strip_prefix("ioctl name=dereg_mr 0=");
                let handle = handle.and_then(|rest| rest.split(' ').next()?.parse().ok());
                handle.is_some_and(|handle| is_of_cq(difference, handle))
            };
            let flushed =
                |line: &&str| Event::parse(line).number("vendor_err").is_some_and(|error| error >> 16 == 1);
            // What is flushed may still come, by another flush.
            let lost = !completes(difference.c.line, id)
                && !comes(difference.c_before)
                && (!comes(difference.c_after) || flushed(&ours.line));
            // Or nothing was behind it any more: then the provider has read on in another ring.
            let elsewhere = ours.kind == "shadow"
                && ours.number("word") == Some(0)
                && only(difference, &["value"])
                && difference.before.iter().any(flushed);
            let given_up =
                c_in_step(difference).iter().any(given_back) && (is_completion && lost || elsewhere);
            given_up.then_some(Effect::Ends)
        },
    },
    Fault {
        name: "a request for an event is not passed on while another is out",
        matches: |difference, _| {
            let ours = &difference.ours;
            let kept = matches!(difference.step(), Some(Step::Arm { solicited: true, .. }))
                && ours.kind == "shadow"
                && ours.number("word") == Some(4)
                && !matches!(difference.c.kind, "shadow" | "doorbell");
            kept.then_some(Effect::Ends)
        },
    },
    Fault {
        name: "receives with immediate are all said to be of a send (plain interface), or all of a write (extended)",
        matches: |difference, history| {
            let (ours, c) = (&difference.ours, &difference.c);
            let (wrong, right) = match (c.kind, ours.number("opcode")?, c.number("opcode")?) {
                ("wc", 129, 128) => (" opcode=128 ", " opcode=129 "),
                ("current", 128, 129) => (" opcode=129 ", " opcode=128 "),
                _ => return None,
            };
            let immediate = ours.number("flags")? & 2 != 0;
            if immediate { differs_only_by(difference, history, &c.line.replace(wrong, right)) } else { None }
        },
    },
    Fault {
        name: "the key that was invalidated is not told by the extended interface",
        matches: |difference, _| {
            let (ours, c) = (&difference.ours, &difference.c);
            let lost = c.kind == "current"
                && only(difference, &["imm"])
                && ours.number("flags")? & 8 != 0
                && c.number("imm") == Some(0);
            lost.then_some(Effect::Values)
        },
    },
    Fault {
        name: "a ring from before a resize is not finished by the completion of a flush that finds its queue empty",
        matches: |difference, _| {
            let ours = &difference.ours;
            let progress = format!("shadow cq={} word=0 ", ours.text("cq"));
            let unfinished = matches!(difference.step(), Some(Step::Poll { .. } | Step::PollEx { .. }))
                && ours.kind == "shadow"
                && ours.number("word") == Some(4)
                && difference.before.iter().any(|line| line.starts_with(&progress))
                && difference.c.kind == "step";
            unfinished.then_some(Effect::Ends)
        },
    },
    Fault {
        name: "the completion of work by which the kernel set up a connection is given to a program that has posted",
        matches: |difference, _| {
            let kernels = |line: &str| {
                (line.starts_with("wc ") || line.starts_with("current "))
                    && line.contains(" wr_id=0 status=0 opcode=0 ")
            };
            let c = &difference.c;
            let given = match c.kind {
                "wc" | "current" => kernels(c.line),
                "poll_cq" => {
                    let count = usize::try_from(c.number("result")?).ok()?;
                    difference.c_after.iter().take(count).any(|line| kernels(line))
                }
                "start_poll" | "next_poll" => difference.c_after.first().is_some_and(|line| kernels(line)),
                _ => false,
            };
            given.then_some(Effect::Ends)
        },
    },
    Fault {
        name: "passing over the kernel's work by which a connection was set up, in a ring's last slot, forgets that a \
               new lap begins: completions of the last one are taken again",
        matches: |difference, _| {
            let (ours, c) = (&difference.ours, &difference.c);
            let polls = matches!(difference.step(), Some(Step::Poll { .. } | Step::PollEx { .. }));
            let progress = |event: &Event<'_>| event.kind == "shadow" && event.number("word") == Some(0);
            let silent = !difference.before.iter().any(|line| Event::parse(line).number("wr_id").is_some());
            let same = polls && progress(ours) && progress(c) && only(difference, &["value"]) && silent;
            let begins = same && ours.number("value") == Some(0);
            // Where it was before, and where the ring ends.
            let cq = ours.text("cq");
            let at = |event: &Event<'_>| progress(event) && event.text("cq") == cq;
            let before = difference.c_before.iter().rev().map(|line| Event::parse(line)).find(at)?;
            let of_cq = |event: &Event<'_>| {
                event.is_ioctl("create_cq") && event.number("1001.cq_id") == ours.number("cq")
            };
            let made = difference.c_before.iter().rev().map(|line| Event::parse(line)).find(of_cq)?;
            let was_last = before.number("value")? + 1 == made.number("1.cqe")?;
            (begins && was_last).then_some(Effect::Ends)
        },
    },
    Fault {
        name: "what a destroyed queue pair has left in a ring from before a resize is read through its freed memory",
        matches: |difference, _| {
            let before = &difference.program[..difference.step];
            let resized = before.iter().position(|step| matches!(step, Step::ResizeCq { .. }))?;
            let destroyed = before[resized..].iter().any(|step| matches!(step, Step::DestroyQp { .. }));
            let crashed = matches!(difference.step(), Some(Step::Poll { .. } | Step::PollEx { .. }))
                && difference.c.line == "died code=139";
            (destroyed && crashed).then_some(Effect::Ends)
        },
    },
];
