//! Messages, memory and atomics over UCX between two sides of one process, every byte compared.
//!
//! `UCX_TLS`, `UCX_NET_DEVICES` and so on choose the transport. Prints a line for each kind that
//! passed, then `all as sent`; on an error, exits with 1 and says what was wrong.

mod memory;
mod messages;
mod pair;
mod pattern;
mod side;
#[allow(
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    dead_code,
    unused_imports,
    clippy::all,
    clippy::undocumented_unsafe_blocks
)]
mod ucp {
    //! Bindings of UCX's protocol layer, as the machine's headers have them.
    include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
}

use anyhow::{Context, Result};

use pair::Pair;

/// Lengths: both sides of what is sent inline, of an MTU, of the change from copies to rendezvous.
const LENGTHS: &[usize] = &[1, 8, 31, 100, 101, 1023, 1024, 4096, 8191, 8192, 8193, 65_536, 262_143, 1 << 20];

fn main() -> Result<()> {
    let pair = Pair::open()?;
    for &length in LENGTHS {
        let of = |what| move || format!("{what} of {length} bytes");
        let count = if length > 65_536 { 2 } else { 40 };
        messages::tagged(&pair, length, count).with_context(of("tagged messages"))?;
        messages::active(&pair, length.min(64), length).with_context(of("an active message"))?;
        memory::put(&pair, length).with_context(of("put"))?;
        memory::get(&pair, length).with_context(of("get"))?;
        println!("{length} bytes: tagged, active, put, get");
    }
    memory::atomics(&pair)?;
    println!("atomics\nall as sent");
    Ok(())
}
