//! Barriers of the data path on arm64, read from the built plugin: nothing but the instructions shows them.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail, ensure};

use crate::workspace::read;

/// A function of the data path, by a part of its name, and what there must be in it, one after the other: `s`
/// stores, `l` loads, `w` barriers between stores, `r` barriers after loads, `f` barriers that wait for
/// stores. Others may be in between.
const WANTED: &[(&str, &str, &str)] = &[
    ("post_send", "swsws", "WQE, barrier, header, barrier, doorbell"),
    ("post_several", "swswsws", "padding, barrier, its header; the same"),
    ("post_immediate", "swswsws", "the same"),
    ("post_inline", "swswsws", "the same"),
    ("post_recv", "sws", "WQE, barrier, header"),
    ("post_srq_recv", "swsws", "WQE, barrier, header, barrier, index"),
    ("poll_locked", "lrlrslrs", "valid bit, barrier; CQE of a send, barrier, index; of a receive the same"),
    ("req_notify_cq", "sws", "request, barrier, doorbell"),
    ("push_each", "fsfs", "barrier, WQE, barrier, push doorbell"),
    ("announce_pushing", "fsfsws", "the same, barrier, doorbell"),
    ("announce_padded", "fsfsfsfsws", "the same with padding before the WQE"),
];

/// Fails if one is missing; returns a line for each function.
pub fn check(plugin: &Path) -> Result<Vec<String>> {
    let mut objdump = Command::new("aarch64-linux-gnu-objdump");
    check_listing(&read(objdump.args(["--disassemble", "--no-show-raw-insn"]).arg(plugin))?)
}

fn check_listing(listing: &str) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    for &(part, wanted, meaning) in WANTED {
        let found: Vec<(&str, String)> =
            functions(listing).filter(|(name, _)| is_named(name, part)).collect();
        ensure!(!found.is_empty(), "the object has no function {part}");
        for (name, order) in &found {
            if !has(order, wanted) {
                bail!("{name} lacks a barrier: {meaning} ({wanted}) in {order}");
            }
        }
        lines.push(format!("{part}: {meaning}: in {} functions", found.len()));
    }
    Ok(lines)
}

/// Whether the last part of a mangled name is `part`, perhaps of a generic function.
fn is_named(name: &str, part: &str) -> bool {
    let length = part.len().to_string();
    name.match_indices(part).any(|(at, _)| {
        let after = &name[at + part.len()..];
        name[..at].ends_with(&length) && !after.starts_with(|next: char| next.is_ascii_digit())
    })
}

/// Names of functions and what of interest is in them, as it follows in memory.
fn functions(listing: &str) -> impl Iterator<Item = (&str, String)> {
    listing.split("\n\n").filter_map(|function| {
        let (heading, body) = function.trim_start().split_once(">:\n")?;
        Some((heading.split_once('<')?.1, body.lines().filter_map(kind).collect()))
    })
}

/// What an instruction is, if it is of interest.
fn kind(line: &str) -> Option<char> {
    let (_, instruction) = line.split_once(":\t")?;
    let (name, operands) = instruction.split_once('\t').unwrap_or((instruction, ""));
    Some(match (name, operands.trim()) {
        // A function's own stack is nobody else's.
        (_, operands) if operands.contains("[sp") => return None,
        ("dmb", "oshst") => 'w',
        ("dmb", "oshld") => 'r',
        ("dsb", "st") => 'f',
        _ if name.starts_with("st") => 's',
        _ if name.starts_with("ld") => 'l',
        _ => return None,
    })
}

/// Whether all that is wanted is there, in that order.
fn has(order: &str, wanted: &str) -> bool {
    let mut rest = order.chars();
    wanted.chars().all(|one| rest.by_ref().any(|other| other == one))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FUNCTION: &str = "\
0000000000030e4c <_RINvNtCs9_5irdma9post_recv9post_recvNtNtCs4_8irdma_hw10generation4Gen2EB4_>:
   30e4c:\tstp\tx29, x30, [sp, #-48]!
   30e5c:\tldrb\tw8, [x0, #832]
   30ef8:\tstr\tx11, [x8]
   31038:\tstlr\tw9, [x11]
   31040:\tdmb\toshst
   31044:\tstr\tx9, [x8, #24]
";

    #[test]
    fn what_follows_in_a_function_is_told() {
        let listing = format!("\nDisassembly:\n\n{FUNCTION}\n{FUNCTION}");
        let found: Vec<_> = functions(&listing).collect();
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].1, "lssws");
        assert!(is_named(found[0].0, "post_recv") && !is_named(found[0].0, "recv"));
        assert!(!is_named("_RNvNtCs9_5irdma9post_recv7install", "post_recv"));
    }

    #[test]
    fn a_barrier_that_is_missing_or_in_another_place_is_found() {
        for (order, wanted, is_there) in [
            ("lssws", "sws", true),
            ("lsss", "sws", false),
            ("lssw", "sws", false),
            ("ssws", "swsws", false),
            ("sfs", "fsfs", false),
            ("lfsslsfs", "fsfs", true),
        ] {
            assert_eq!(has(order, wanted), is_there, "{wanted} in {order}");
        }
    }
}
