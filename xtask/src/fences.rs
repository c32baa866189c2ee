//! Fences around pushes, read from the built plugin: nothing but the instructions shows them.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

use crate::workspace::read;

/// A store fence before every push and one between it and its doorbell.
pub fn around_pushes(unstripped: &Path) -> Result<()> {
    let listing =
        read(Command::new("objdump").args(["--disassemble", "--no-show-raw-insn"]).arg(unstripped))?;
    let orders = orders(&listing);
    ensure!(!orders.is_empty(), "no function has a fence");
    for (function, order) in orders {
        ensure!(is_fenced(&order), "stores (s) and fences (f) of {function} come in this order: {order}");
    }
    Ok(())
}

/// The functions that have fences, those that push, each with `f` for a fence and `s` for another store, as
/// they follow in memory.
fn orders(listing: &str) -> Vec<(&str, String)> {
    let mut orders: Vec<(&str, String)> = Vec::new();
    for line in listing.lines() {
        if let Some(name) = line.strip_suffix(">:") {
            orders.push((name, String::new()));
        } else if let (Some((_, order)), Some((_, instruction))) = (orders.last_mut(), line.split_once(":\t"))
        {
            order.extend(kind(instruction));
        }
    }
    orders.retain(|(_, order)| order.contains('f'));
    orders
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
0000000000001000 <_ZN8irdma_hw5queue4send9SendQueue9push_each17h0E>:
    1000:\tpush   %rbp
    1001:\tmov    (%rdi),%rax
    1004:\tmov    %rax,0x8(%rsp)
    1006:\tmov    %rax,0x8(%rdi)
    1008:\tsfence
    100b:\tmov    %rcx,(%rsi,%rdx,1)
    100f:\tsfence
    1012:\tmov    %eax,(%rcx)

0000000000002000 <other>:
    2000:\tmov    %eax,(%rcx)
";

    #[test]
    fn the_order_of_stores_and_fences_shows() {
        let orders = orders(LISTING);
        let orders: Vec<&str> = orders.iter().map(|(_, order)| order.as_str()).collect();
        assert_eq!(orders, ["sfsfs"]);
        for (order, fenced) in
            [("fsfs", true), ("fssssfss", true), ("sfs", false), ("fsf", false), ("", false)]
        {
            assert_eq!(is_fenced(order), fenced, "{order}");
        }
    }
}
