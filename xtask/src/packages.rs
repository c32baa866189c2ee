//! What the machine lacks, installed through apt.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::workspace::read;

/// What building the plugin and the software device takes.
pub const BUILD: &[&str] = &["binutils", "gcc", "libc6-dev", "libclang-dev", "libibverbs-dev", "pkg-config"];

/// What the demo shows beside that.
pub const DEMO: &[&str] = &["ibverbs-providers", "ibverbs-utils", "perftest"];

/// What the tests run beside both.
pub const TEST: &[&str] =
    &["groff-base", "iproute2", "libucx-dev", "python3-pyverbs", "rdmacm-utils", "ucx-utils", "xz-utils"];

/// What counting instructions takes.
pub const BENCH: &[&str] = &["valgrind"];

/// What packing for rpm takes.
pub const RPM: &[&str] = &["rpm"];

/// What looks packages over.
pub const LINTIAN: &[&str] = &["lintian"];

/// Installs those of `packages` that are missing, saying which.
pub fn install<'a>(packages: impl IntoIterator<Item = &'a &'static str>) -> Result<()> {
    let packages: Vec<_> = packages.into_iter().collect();
    if read(Command::new("dpkg-query").arg("--version")).is_err() {
        // Not Debian: whatever is missing will say so itself.
        return Ok(());
    }
    let missing = missing(packages)?;
    if missing.is_empty() {
        return Ok(());
    }
    let list = missing.join(" ");
    if !rustix::process::geteuid().is_root() {
        bail!("this needs packages that are not installed; as root:\n    apt-get install {list}");
    }
    println!("Installing: {list}");
    let apt = || {
        let mut command = Command::new("apt-get");
        // Another program of the machine may be installing just now.
        command.env("DEBIAN_FRONTEND", "noninteractive").args(["--quiet=2", "-o", "DPkg::Lock::Timeout=120"]);
        command
    };
    read(apt().arg("update")).context("the package lists cannot be had: is there a network?")?;
    read(apt().args(["install", "--yes", "--no-install-recommends"]).args(&missing))
        .with_context(|| format!("cannot install {list}"))?;
    Ok(())
}

/// Those of `packages` that dpkg does not know as installed.
fn missing<'a>(packages: impl IntoIterator<Item = &'a &'static str>) -> Result<Vec<&'static str>> {
    let installed = read(Command::new("dpkg-query").args(["--show", "--showformat", SHOW]))
        .context("only Debian and its descendants are supported: dpkg-query did not answer")?;
    let is_installed = |name: &str| {
        installed.lines().any(|line| {
            // A virtual package counts when an installed one provides it: pkgconf is pkg-config today.
            let mut names = line.strip_prefix("installed ").unwrap_or_default().split([',', ' ']);
            names.any(|word| word == name)
        })
    };
    Ok(packages.into_iter().copied().filter(|name| !is_installed(name)).collect())
}

const SHOW: &str = "${db:Status-Status} ${Package} ${Provides}\\n";
