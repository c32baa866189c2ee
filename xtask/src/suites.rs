//! rdma-core of other Debian releases, fetched through apt and cached in the target directory.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow, bail};

use crate::apt::{Apt, reason};
use crate::workspace::{read, run, target};

/// The suites whose rdma-core the tests look at, with its release.
pub const SUITES: &[(&str, u32)] = &[("bookworm", 44), ("trixie", 56), ("forky", 65)];

/// Packages that a plugin for another release is built against.
const DEVELOPMENT: &[&str] = &["libibverbs1", "libibverbs-dev"];

/// Packages with what rdma-core's Python tests run, for programs of another release.
const PROGRAMS: &[&str] =
    &["coreutils", "dash", "ibverbs-providers", "iproute2", "python3", "python3-pyverbs"];

/// Packages with what counts the instructions of programs on another release.
const COUNTING: &[&str] = &["coreutils", "dash", "ibverbs-providers", "valgrind"];

/// Packages with programs that show the plugin at work on another release.
const TOOLS: &[&str] = &["coreutils", "dash", "dpkg", "ibverbs-providers", "ibverbs-utils", "perftest"];

/// A Rust compiler.
const RUST: &[&str] = &["rustc"];

/// What it needs to compile for an architecture.
const RUST_LIBRARY: &[&str] = &["libstd-rust-dev"];

/// What a plugin for arm64 is built against and runs on.
const ARM64: &[&str] = &["libibverbs-dev"];

/// Holds one unpacked rdma-core source tree per suite, named like the suite.
pub fn sources_folder() -> PathBuf {
    target().join("rdma-core")
}

/// The unpacked rdma-core source tree of `suite`.
pub fn source(suite: &str) -> Result<PathBuf> {
    let tree = sources_folder().join(suite);
    fetched(&tree, |partial| {
        let apt = Apt::of_suite(suite)?;
        // Debian's own changes lie under debian/: the upstream archive has all that is compared.
        let listing = read(apt.get().args(["source", "--print-uris", "--only-source", "rdma-core"]))?;
        let archive = listing
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>())
            .find(|fields| fields.len() >= 4 && fields[1].contains(".orig.tar."))
            .ok_or_else(|| anyhow!("{suite} has no source archive of rdma-core"))?;
        let [uri, name, _, digest] = archive[..4] else { bail!("apt listed the archive in an unknown form") };
        let file = partial.with_file_name(name);
        read(apt.helper().arg("download-file").arg(uri.trim_matches('\'')).arg(&file).arg(digest))
            .map_err(|error| anyhow!("{name} cannot be had: {}", reason(&error)))?;
        run(Command::new("tar").arg("-C").arg(partial).args(["--strip-components=1", "-xf"]).arg(&file))?;
        fs::remove_file(&file)?;
        Ok(())
    })?;
    Ok(tree)
}

/// A root with the headers and the library of `suite`'s rdma-core, to build against.
pub fn development_root(suite: &str) -> Result<PathBuf> {
    let tree = target().join("roots").join(suite);
    fetched(&tree, |partial| download(&Apt::of_suite(suite)?, suite, DEVELOPMENT, partial))?;
    Ok(tree)
}

/// A root in which `suite`'s Python finds its pyverbs, with all that both depend on.
pub fn program_root(suite: &str) -> Result<PathBuf> {
    unpacked_root(suite, "programs", PROGRAMS)
}

/// A root with `suite`'s valgrind, with all that it depends on.
pub fn counting_root(suite: &str) -> Result<PathBuf> {
    unpacked_root(suite, "counting", COUNTING)
}

/// A root with `suite`'s programs that measure and show, with all that they depend on.
pub fn tools_root(suite: &str) -> Result<PathBuf> {
    unpacked_root(suite, "tools", TOOLS)
}

/// A root with `suite`'s Rust compiler and its standard library, for this machine and for arm64.
pub fn rust_root(suite: &str) -> Result<PathBuf> {
    let tree = target().join("roots").join(format!("{suite}-rust"));
    fetched(&tree, |partial| {
        unpack_all(&Apt::of_suite(suite)?, suite, RUST, partial)?;
        download(&Apt::of_architecture(suite, "arm64")?, suite, RUST_LIBRARY, partial)
    })?;
    Ok(tree)
}

/// A root with `suite`'s libibverbs for arm64, to build against and to run programs on.
pub fn arm64_root(suite: &str) -> Result<PathBuf> {
    let tree = target().join("roots").join(format!("{suite}-arm64"));
    fetched(&tree, |partial| {
        unpack_all(&Apt::of_architecture(suite, "arm64")?, suite, ARM64, partial)?;
        // As every Debian has it; programs name their dynamic linker by it.
        Ok(symlink("usr/lib", partial.join("lib"))?)
    })?;
    Ok(tree)
}

/// A root with `packages` of `suite` and all that they depend on.
fn unpacked_root(suite: &str, name: &str, packages: &[&str]) -> Result<PathBuf> {
    let tree = target().join("roots").join(format!("{suite}-{name}"));
    fetched(&tree, |partial| unpack_all(&Apt::of_suite(suite)?, suite, packages, partial))?;
    Ok(tree)
}

/// Fetches packages of `suite` with all that they depend on, and unpacks them into `tree`.
fn unpack_all(apt: &Apt, suite: &str, packages: &[&str], tree: &Path) -> Result<()> {
    // Nothing is installed there, so that apt takes everything that is needed.
    let none = apt.folder.join("status");
    fs::write(&none, "")?;
    let mut install = apt.get();
    install.arg("-o").arg(format!("Dir::State::status={}", none.display()));
    install.args(["--yes", "--download-only", "--no-install-recommends", "install"]).args(packages);
    read(&mut install)
        .map_err(|error| anyhow!("{} of {suite} cannot be had: {}", packages.join(", "), reason(&error)))?;
    let archives = apt.folder.join("cache/archives");
    unpack(&archives, tree)?;
    fs::remove_dir_all(&archives)?;
    Ok(())
}

/// rdma-core's own Python tests, as `suite` has them among the documentation of pyverbs.
pub fn python_tests(suite: &str) -> Result<PathBuf> {
    const FOLDER: &str = "usr/share/doc/rdma-core/tests";
    let tree = target().join("rdma-core-tests").join(suite);
    fetched(&tree, |partial| {
        // A machine's own packages may have been unpacked without their documentation.
        download(&Apt::of_suite(suite)?, suite, &["python3-pyverbs"], partial)?;
        let compressed = fs::read_dir(partial.join(FOLDER))
            .with_context(|| format!("pyverbs of {suite} has no tests in its documentation"))?
            .map(|entry| Ok(entry?.path()))
            .filter(|path: &Result<PathBuf>| {
                path.as_ref().map_or(true, |path| path.extension().is_some_and(|end| end == "gz"))
            })
            .collect::<Result<Vec<_>>>()?;
        run(Command::new("gzip").arg("--decompress").args(compressed))
    })?;
    Ok(tree.join(FOLDER))
}

/// Fetches packages of `suite` and unpacks them into `tree`.
fn download(apt: &Apt, suite: &str, packages: &[&str], tree: &Path) -> Result<()> {
    let archives = tree.with_extension("archives");
    let _ = fs::remove_dir_all(&archives);
    fs::create_dir_all(&archives)?;
    read(apt.get().current_dir(&archives).arg("download").args(packages))
        .map_err(|error| anyhow!("{} of {suite} cannot be had: {}", packages.join(", "), reason(&error)))?;
    unpack(&archives, tree)?;
    fs::remove_dir_all(&archives)?;
    Ok(())
}

/// Unpacks every package in `archives` into `tree`.
pub fn unpack(archives: &Path, tree: &Path) -> Result<()> {
    for archive in fs::read_dir(archives)? {
        let archive = archive?.path();
        if archive.extension().is_some_and(|extension| extension == "deb") {
            run(Command::new("dpkg-deb").arg("--extract").arg(archive).arg(tree))?;
        }
    }
    Ok(())
}

/// Fills `tree` by `fill` unless it is there already; an interrupted run leaves no half tree.
pub fn fetched(tree: &Path, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    if tree.exists() {
        return Ok(());
    }
    let partial = tree.with_extension("partial");
    let _ = fs::remove_dir_all(&partial);
    fs::create_dir_all(&partial)?;
    fill(&partial)?;
    fs::rename(&partial, tree)?;
    Ok(())
}
