//! `cargo xtask arm64`: the plugin for arm64, its barriers, and its unit tests in an emulator.
//!
//! All of it on an x86-64 machine: with Debian forky's Rust compiler, whose standard library for arm64 is
//! a package, the machine's own cross linker, forky's libibverbs for arm64, and QEMU's emulator of
//! single programs.

mod barriers;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Result, ensure};

use crate::layout::layout_below;
use crate::workspace::{cargo, run as run_by, target};
use crate::{inspect, packages, suites};

/// What it takes beside what building the plugin does.
const PACKAGES: &[&str] = &["gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross", "qemu-user"];

/// The suite with a Rust compiler that is new enough.
const SUITE: &str = "forky";

/// Rust's name of the architecture.
const TARGET: &str = "aarch64-unknown-linux-gnu";

/// Tests that start their own program again, which the kernel cannot, as it is one for arm64.
const NOT_RUN: &[&str] = &[
    "environment::tests::a_switch_is_on_unless_it_is_nothing_or_zero",
    "environment::tests::programs_with_more_rights_than_their_user_do_not_look",
];

/// Builds, looks at what was built, and runs the unit tests.
pub fn run() -> Result<ExitCode> {
    ensure!(cfg!(target_arch = "x86_64"), "this is for x86-64 machines; on others, cargo itself will do");
    packages::install(packages::BUILD.iter().chain(PACKAGES))?;
    let tools = Tools::fetch()?;
    run_by(tools.cargo("build").args(["--quiet", "--release", "--package", "irdma"]))?;
    let plugin = tools.built().join(TARGET).join("release/libirdma.so");
    inspect::symbols(&plugin, layout_below(&tools.libraries, "aarch64-linux-gnu")?)?;
    for line in barriers::check(&plugin)? {
        println!("{line}");
    }
    let mut tests = tools.cargo("test");
    tests.args(["--no-fail-fast", "--lib", "--test", "races"]);
    tests.args(["--package", "irdma-hw", "--package", "rdma-core-sys", "--package", "irdma", "--"]);
    tests.args(NOT_RUN.iter().flat_map(|name| ["--skip", name]));
    run_by(&mut tests)?;
    for name in NOT_RUN {
        println!("not run: {name}: starts its own program again");
    }
    println!("{}", plugin.display());
    Ok(ExitCode::SUCCESS)
}

/// What builds and runs programs for arm64.
struct Tools {
    /// The compiler, in a script that starts it on the libraries of its own suite.
    compiler: PathBuf,
    /// The root with libibverbs, and all that programs need.
    libraries: PathBuf,
}

impl Tools {
    fn fetch() -> Result<Tools> {
        let libraries = suites::arm64_root(SUITE)?;
        let compiler = target().join("arm64/rustc");
        fs::create_dir_all(target().join("arm64"))?;
        fs::write(&compiler, script(&suites::rust_root(SUITE)?.canonicalize()?))?;
        fs::set_permissions(&compiler, fs::Permissions::from_mode(0o755))?;
        Ok(Tools { compiler, libraries: libraries.canonicalize()? })
    }

    /// Where what it builds goes, apart from what this machine's compiler does.
    fn built(&self) -> PathBuf {
        target().join("arm64")
    }

    /// cargo for arm64. It runs what it has built in the emulator.
    fn cargo(&self, subcommand: &str) -> Command {
        let mut command = cargo(subcommand);
        command.args(["--target", TARGET]);
        command.env("RUSTC", &self.compiler).env("CARGO_TARGET_DIR", self.built());
        command.env("IRDMA_RDMA_CORE_ROOT", &self.libraries).env("QEMU_LD_PREFIX", &self.libraries);
        command.env(
            "BINDGEN_EXTRA_CLANG_ARGS_aarch64_unknown_linux_gnu",
            "-isystem /usr/aarch64-linux-gnu/include",
        );
        let ours = |name: &str| format!("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_{name}");
        command.env(ours("LINKER"), "aarch64-linux-gnu-gcc").env(ours("RUNNER"), "qemu-aarch64");
        // The libraries are newer than those that the linker knows.
        command.env(ours("RUSTFLAGS"), "-Clink-arg=-Wl,--unresolved-symbols=ignore-in-shared-libs");
        command
    }
}

/// Starts the compiler of an unpacked root.
fn script(root: &Path) -> String {
    format!(
        "#!/bin/sh\nroot='{}'\nexec \"$root/usr/lib64/ld-linux-x86-64.so.2\" \
         --library-path \"$root/usr/lib/x86_64-linux-gnu\" \"$root/usr/bin/rustc\" \"$@\"\n",
        root.display()
    )
}
