//! Passes on which layout of libibverbs' private interface the bindings have, and has the linker leave out
//! what a stripped plugin cannot use.

use std::process::Command;
use std::{env, fs};

include!("rdma-core-sys/layouts.rs");

fn main() {
    println!("cargo::rerun-if-changed=rdma-core-sys/layouts.rs");
    let number = env::var("DEP_IBVERBS_LAYOUT").expect("rdma-core-sys says so");
    let number: u32 = number.parse().expect("the number of a layout");
    for change in LAYOUTS.iter().skip(1).map(|layout| layout.number) {
        println!("cargo::rustc-check-cfg=cfg(layout_since, values(\"{change}\"))");
        if change <= number {
            println!("cargo::rustc-cfg=layout_since=\"{change}\"");
        }
    }
    // A sum over debug information, which names folders: the plugin would differ with where it is built.
    println!("cargo::rustc-cdylib-link-arg=-Wl,--build-id=none");
    println!("cargo::rustc-check-cfg=cfg(no_backtraces)");
    if let Some(symbol) = backtrace_printer() {
        println!("cargo::rustc-cfg=no_backtraces");
        println!("cargo::rustc-cdylib-link-arg=-Wl,--defsym={symbol}=irdma_no_backtrace");
    }
}

/// The function of Rust's standard library that prints a backtrace, by the name that the linker knows.
///
/// It brings along what reads debug information, 200 KiB, and a stripped plugin has none. Where this finds
/// it, `src/backtrace.rs` has one to take its place. Messages of panics stay as they are.
fn backtrace_printer() -> Option<String> {
    const START: &str = "_RNvXNvMNtNtCs";
    const WITHIN: &str = "_3std3sys9backtraceNtB5_13BacktraceLock5printNtB2_16DisplayBacktraceNtNtCs";
    const END: &str = "_4core3fmt7Display3fmt";
    let target = env::var("TARGET").ok()?;
    if target != "x86_64-unknown-linux-gnu" {
        return None;
    }
    let mut rustc = Command::new(env::var_os("RUSTC")?);
    let output = rustc.args(["--print", "target-libdir", "--target", &target]).output().ok()?;
    let folder = String::from_utf8(output.stdout).ok()?;
    let library =
        fs::read_dir(folder.trim()).ok()?.filter_map(|entry| Some(entry.ok()?.path())).find(|path| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            name.starts_with("libstd-") && name.ends_with(".rlib")
        })?;
    let bytes = fs::read(library).ok()?;
    // Names of symbols lie in it as they are.
    let is_of_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let names = bytes.split(|byte| !is_of_name(byte)).filter_map(|name| str::from_utf8(name).ok());
    let is_it = |name: &&str| name.starts_with(START) && name.contains(WITHIN) && name.ends_with(END);
    names.filter(is_it).map(str::to_owned).next()
}
