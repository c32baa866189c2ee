//! Fences around pushes, read from the built plugin: nothing but the instructions shows them.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

use crate::workspace::read;

/// The function that stores to push pages and rings their doorbells.
const PUSHING: &str = "push_batch";

/// A store fence before a push and one between it and its doorbell.
pub fn around_pushes(unstripped: &Path) -> Result<()> {
    let listing =
        read(Command::new("objdump").args(["--disassemble", "--no-show-raw-insn"]).arg(unstripped))?;
    let order = order(&listing);
    ensure!(is_fenced(&order), "stores (s) and fences (f) of pushes come in this order: {order}");
    Ok(())
}

/// `f` for each fence and `s` for each other store of the function, as they follow in memory.
fn order(listing: &str) -> String {
    let mut order = String::new();
    let mut inside = false;
    for line in listing.lines() {
        if let Some(name) = line.strip_suffix(">:") {
            inside = name.contains(PUSHING);
        } else if inside && let Some((_, instruction)) = line.split_once(":\t") {
            order.extend(kind(instruction));
        }
    }
    order
}

/// What an instruction is, if it is one of those. Its own stack is no place of a push.
fn kind(instruction: &str) -> Option<char> {
    if instruction.trim() == "sfence" {
        return Some('f');
    }
    // Of a load, it is the source that has parentheses.
    let (source, target) = instruction.strip_prefix("mov")?.split_once(',')?;
    (!source.contains('(') && target.contains('(') && !target.contains("%rsp")).then_some('s')
}

/// A fence, the push, a fence, the doorbell.
fn is_fenced(order: &str) -> bool {
    let mut parts = order.split('f');
    // What comes before the first fence is none of a push.
    parts.next().is_some()
        && parts.next().is_some_and(|push| push.contains('s'))
        && parts.next().is_some_and(|bell| bell.contains('s'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTING: &str = "\
0000000000001000 <_ZN8irdma_hw5queue4send9SendQueue10push_batch17h0E>:
    1000:\tpush   %rbp
    1001:\tmov    (%rdi),%rax
    1004:\tmov    %rax,0x8(%rsp)
    1008:\tsfence
    100b:\tmov    %rcx,(%rsi,%rdx,1)
    100f:\tsfence
    1012:\tmov    %eax,(%rcx)

0000000000002000 <other>:
    2000:\tmov    %eax,(%rcx)
";

    #[test]
    fn the_order_of_stores_and_fences_shows() {
        assert_eq!(order(LISTING), "fsfs");
        for (order, fenced) in
            [("fsfs", true), ("fssssfss", true), ("sfs", false), ("fsf", false), ("", false)]
        {
            assert_eq!(is_fenced(order), fenced, "{order}");
        }
    }
}
