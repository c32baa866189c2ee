//! What a built plugin imports, exports and calls, read from the object itself.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Result, anyhow, bail, ensure};

use crate::layout::Layout;
use crate::workspace::read;

/// The plugin exports nothing, and its imports carry the right versions.
pub fn symbols(library: &Path, layout: &Layout) -> Result<()> {
    let exports = read(Command::new("nm").args(["--dynamic", "--defined-only"]).arg(library))?;
    ensure!(exports.trim().is_empty(), "the plugin exports symbols:\n{exports}");

    let private = format!("IBVERBS_PRIVATE_{}", layout.pabi);
    let listing = read(Command::new("nm").args(["--dynamic", "--undefined-only"]).arg(library))?;
    let mut registers = false;
    for symbol in listing.lines().filter_map(|line| line.trim().strip_prefix("U ")) {
        let (name, version) =
            symbol.split_once('@').ok_or_else(|| anyhow!("the import {symbol} carries no version"))?;
        let is_private = name.starts_with("ibv_cmd_")
            || name.starts_with("verbs_")
            || name.starts_with("__verbs_")
            || name.starts_with("_verbs_");
        if is_private {
            ensure!(version == private, "{symbol} is not of {private}");
        } else if name.starts_with("ibv_") {
            let public = version.starts_with("IBVERBS_1.") || version == private;
            ensure!(public, "{symbol} is neither of libibverbs' public interface nor of {private}");
        }
        ensure!(is_in_old_libraries(version), "{symbol} is not in older GNU C libraries");
        registers |= name == format!("verbs_register_driver_{}", layout.pabi);
    }
    ensure!(registers, "the plugin does not import verbs_register_driver_{}", layout.pabi);

    let dynamic = read(Command::new("readelf").args(["--wide", "--dynamic"]).arg(library))?;
    for line in dynamic.lines().filter(|line| line.contains("(NEEDED)")) {
        let allowed = ["libibverbs.so.1", "libc.so.6", "libgcc_s.so.1", "ld-linux"];
        ensure!(allowed.iter().any(|name| line.contains(name)), "the plugin needs a further library: {line}");
    }
    Ok(())
}

/// Whether the GNU C library of the oldest distributions with an rdma-core of ours, 2.28, has what newer ones have
/// under that version. In 2.34 functions of other libraries of its moved into it, which have an older version
/// where the plugin is built with an older library.
fn is_in_old_libraries(version: &str) -> bool {
    let release = version.strip_prefix("GLIBC_2.").and_then(|number| number.split('.').next()?.parse().ok());
    release.is_none_or(|release: u32| release <= 28 || release == 34)
}

/// A program needs no library beside the C library's: it starts on any system.
pub fn starts_alone(program: &Path) -> Result<()> {
    let dynamic = read(Command::new("readelf").args(["--wide", "--dynamic"]).arg(program))?;
    for line in dynamic.lines().filter(|line| line.contains("(NEEDED)")) {
        let allowed = ["libc.so.6", "libgcc_s.so.1", "ld-linux"];
        ensure!(allowed.iter().any(|name| line.contains(name)), "{} needs more: {line}", program.display());
    }
    Ok(())
}

/// The functions that post and poll: a program calls them for every message. With their module
/// where a control verb has the same name.
const DATA_PATH: &[&str] = &[
    "post_send",
    "post_recv",
    "post_srq_recv",
    "poll_cq",
    "start_poll",
    "next_poll",
    "qp_batch::start",
    "qp_batch::complete",
    "qp_batch::abort",
    "qp_ex::send",
    "qp_ex::send_imm",
    "qp_ex::rdma_write",
    "qp_ex::rdma_write_imm",
    "qp_ex::rdma_read",
    "qp_ex::compare_swap",
    "qp_ex::fetch_add",
    "qp_ex::local_inv",
    "qp_ex::bind_mw",
    "qp_ex::set_sge",
    "qp_ex::set_sge_list",
    "qp_ex::set_inline_data",
    "qp_ex::set_inline_data_list",
    "qp_ex::set_ud_addr",
];

/// Small ones of the same kind; the compiler may have merged them with equal ones.
fn is_small_data_path(name: &str) -> bool {
    matches!(name, "end_poll" | "req_notify_cq") || name.starts_with("read_")
}

/// Imports that the data path may call: the C library's copies, and what its cold corners need:
/// a turn for the holder of a contended lock, a refusal's log line, the flush of a queue in error and
/// the barrier in all threads (`syscall`) that goes before it.
const ALLOWED_IMPORTS: &[&str] = &[
    "memcpy",
    "memmove",
    "memset",
    "memcmp",
    "bcmp",
    "__errno_location",
    "sched_yield",
    "syscall",
    "__verbs_log",
    "dprintf",
    "ibv_cmd_modify_qp",
    "ibv_cmd_modify_qp_ex",
];

/// Stands for whatever a call through a pointer leads to.
const INDIRECT: &str = "call through a pointer@";

/// No panic, allocation, formatting or call through a pointer can be reached from post and poll.
///
/// Follows every direct call and jump of the disassembled functions, and every
/// function whose address they take.
pub fn data_path(unstripped: &Path) -> Result<()> {
    let calls = CallGraph::of(unstripped)?;
    let is_ours = |name: &&str| name.starts_with("irdma::");
    let mut waiting: Vec<&str> =
        calls.functions().filter(is_ours).filter(|name| is_small_data_path(last_segment(name))).collect();
    for wanted in DATA_PATH {
        let found: Vec<&str> = calls
            .functions()
            .filter(is_ours)
            .filter(|name| path_of(name).ends_with(&format!("::{wanted}")))
            .collect();
        ensure!(!found.is_empty(), "the object has no function {wanted}");
        waiting.extend(found);
    }
    let mut came_from: BTreeMap<&str, &str> = BTreeMap::new();
    let mut seen: BTreeSet<&str> = waiting.iter().copied().collect();
    while let Some(function) = waiting.pop() {
        if is_forbidden(function) || (!calls.has(function) && !is_allowed_import(function)) {
            let mut way = vec![function];
            while let Some(&caller) = came_from.get(way[way.len() - 1]) {
                way.push(caller);
            }
            way.reverse();
            bail!("the data path must not reach this: {}", way.join(" -> "));
        }
        for callee in calls.callees(function) {
            if seen.insert(callee) {
                came_from.insert(callee, function);
                waiting.push(callee);
            }
        }
    }
    Ok(())
}

/// Whether a function may not be on the data path, wherever it comes from.
fn is_forbidden(function: &str) -> bool {
    const PARTS: &[&str] = &[
        "panic",
        "core::fmt",
        "alloc::",
        "std::",
        "unwrap_failed",
        "expect_failed",
        "slice_index_fail",
        "__rust_",
    ];
    PARTS.iter().any(|part| function.contains(part))
}

fn is_allowed_import(function: &str) -> bool {
    let name = function.split('@').next().unwrap_or(function);
    ALLOWED_IMPORTS.contains(&name)
}

/// `irdma::qp::post_send` of `irdma::qp::post_send::<irdma_hw::Gen2>`.
fn path_of(function: &str) -> &str {
    function.split(['<', '[']).next().unwrap_or(function).trim_end_matches("::")
}

/// `post_send` of `irdma::qp::post_send::<irdma_hw::Gen2>`.
fn last_segment(function: &str) -> &str {
    let path = path_of(function);
    path.rsplit("::").next().unwrap_or(path)
}

/// Who calls whom in an object.
struct CallGraph {
    callees: BTreeMap<String, BTreeSet<String>>,
}

impl CallGraph {
    /// From its disassembly, with imports by the name in the relocation of their slot.
    fn of(object: &Path) -> Result<CallGraph> {
        let relocations = read(Command::new("objdump").arg("--dynamic-reloc").arg(object))?;
        let listing = read(
            Command::new("objdump").args(["--disassemble", "--demangle", "--no-show-raw-insn"]).arg(object),
        )?;
        Ok(CallGraph::parse(&listing, &slots(&relocations, &starts(&listing))))
    }

    fn parse(listing: &str, slots: &BTreeMap<u64, String>) -> CallGraph {
        let mut callees: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let mut current: Option<&mut BTreeSet<String>> = None;
        // Registers that hold a slot's content, for a function called in a loop.
        let mut loaded: BTreeSet<&str> = BTreeSet::new();
        for line in listing.lines() {
            if let Some(name) = line.strip_suffix(">:").and_then(|line| line.split_once(" <")) {
                current = Some(callees.entry(name.1.to_owned()).or_default());
                loaded.clear();
            } else if let Some(callees) = current.as_deref_mut() {
                if let Some(import) = slot_behind(line, slots) {
                    callees.insert(import.to_owned());
                    loaded.extend(destination(line));
                } else if let Some(pointer) = called_pointer(line) {
                    callees.extend((!loaded.contains(pointer)).then(|| INDIRECT.to_owned()));
                } else {
                    callees.extend(named_function(line));
                }
            }
        }
        // Data has names too: what is neither a function nor an import is no call.
        let functions: BTreeSet<String> = callees.keys().cloned().collect();
        for callees in callees.values_mut() {
            callees.retain(|callee| callee.contains('@') || functions.contains(callee));
        }
        CallGraph { callees }
    }

    /// Every function's name.
    fn functions(&self) -> impl Iterator<Item = &str> {
        self.callees.keys().map(String::as_str)
    }

    fn has(&self, function: &str) -> bool {
        self.callees.contains_key(function)
    }

    fn callees(&self, function: &str) -> impl Iterator<Item = &str> {
        self.callees.get(function).into_iter().flatten().map(String::as_str)
    }
}

/// What the slot refers to that an instruction reads: `# 5f60 <...>`.
fn slot_behind<'slots>(line: &str, slots: &'slots BTreeMap<u64, String>) -> Option<&'slots str> {
    let address = line.split_once("# ")?.1.split_whitespace().next()?;
    slots.get(&u64::from_str_radix(address, 16).ok()?).map(String::as_str)
}

/// The register that `mov 0x10(%rip),%r14  # ...` fills.
fn destination(line: &str) -> Option<&str> {
    let instruction = line.split_once('#')?.0.trim_end();
    instruction.rsplit_once(',').map(|(_, register)| register)
}

/// `%r14` of `call *%r14`; `jmp *%r14` is only the table of a match.
fn called_pointer(line: &str) -> Option<&str> {
    line.split_once("call")?.1.trim().strip_prefix('*')
}

/// The function `<name>` of a call, a jump or an address; `<name+0x10>` is a jump within one.
fn named_function(line: &str) -> Option<String> {
    let name = line.split_once('<')?.1.strip_suffix('>')?;
    name.rsplit_once("+0x").is_none().then(|| name.to_owned())
}

/// The functions of a disassembly by their address.
fn starts(listing: &str) -> BTreeMap<u64, &str> {
    listing
        .lines()
        .filter_map(|line| {
            let (address, name) = line.strip_suffix(">:")?.split_once(" <")?;
            Some((u64::from_str_radix(address, 16).ok()?, name))
        })
        .collect()
}

/// What each slot that the loader fills refers to: an import, or a function of the object.
fn slots(relocations: &str, starts: &BTreeMap<u64, &str>) -> BTreeMap<u64, String> {
    relocations
        .lines()
        .filter_map(|line| {
            let mut fields = line.split_whitespace();
            let slot = u64::from_str_radix(fields.next()?, 16).ok()?;
            let kind = fields.next()?;
            let symbol = fields.next()?;
            let name = if kind.ends_with("_RELATIVE") {
                let address = u64::from_str_radix(symbol.strip_prefix("*ABS*+0x")?, 16).ok()?;
                (*starts.get(&address)?).to_owned()
            } else if symbol.contains('@') {
                symbol.to_owned()
            } else {
                format!("{symbol}@")
            };
            Some((slot, name))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTING: &str = "\
0000000000001000 <irdma::qp::post_send>:
    1000:\tcall   2000 <irdma::qp::refuse>
    1001:\tmov    0x4f60(%rip),%r14        # 5f60 <_DYNAMIC+0x1e0>
    1002:\tcall   *%r14
    1005:\tjmp    1000 <irdma::qp::post_send+0x10>

0000000000002000 <irdma::qp::refuse>:
    2000:\tcall   3000 <core::panicking::panic>
    2003:\tcall   *0x10(%rbx)
    2005:\tlea    0x10(%rip),%rdi        # 4000 <anon.0>

0000000000003000 <core::panicking::panic>:
    3000:\tud2
";

    #[test]
    fn calls_and_imports_are_found() {
        let slots = BTreeMap::from([(0x5f60, "memcpy@GLIBC_2.14".to_owned())]);
        let graph = CallGraph::parse(LISTING, &slots);
        let callees: Vec<&str> = graph.callees("irdma::qp::post_send").collect();
        assert_eq!(callees, ["irdma::qp::refuse", "memcpy@GLIBC_2.14"]);
        assert!(is_allowed_import(callees[1]));
        assert!(!is_allowed_import("malloc@GLIBC_2.2.5"));
        let callees: Vec<&str> = graph.callees("irdma::qp::refuse").collect();
        assert_eq!(callees, [INDIRECT, "core::panicking::panic"]);
        assert!(!is_allowed_import(callees[0]) && is_forbidden(callees[1]));
    }

    #[test]
    fn functions_are_known_by_their_last_segment() {
        assert_eq!(last_segment("irdma::qp::post_send"), "post_send");
        assert_eq!(last_segment("irdma::qp::post_send::<irdma_hw::Gen2>"), "post_send");
    }
}
