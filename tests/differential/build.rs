//! Lets libibverbs find this program's `ioctl` before the C library's: see `execute::hook`.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg-bins=-Wl,--export-dynamic-symbol=ioctl");
}
