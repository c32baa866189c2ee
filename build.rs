//! Passes on which layout of libibverbs' private interface the bindings have.

use std::env;

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
}
