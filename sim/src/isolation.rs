//! Shows a program the device's files in place: in a private mount namespace.
//!
//! `/sys/class` and `/dev` are replaced by a tmpfs of bind mounts, one for each
//! old entry, with the device's own added, and `/etc/libibverbs.d` by one that
//! names a single driver. That works for root and, in a user namespace, for
//! everybody else where the kernel allows it; an overlay would not (`/sys` is refused
//! as its lower layer there). Where it fails, the preload library redirects paths.

use std::ffi::CStr;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::ptr;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;

use crate::discovery::{self, MANAGER};
use crate::runtime::c_path;

/// How the device's files are shown to a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Isolation {
    /// In a namespace if that works, else by redirection
    Auto,
    /// In a private mount namespace, at their usual places
    Namespace,
    /// By redirecting the paths that the program uses
    Rewrite,
}

/// There is no private namespace for this user on this machine.
#[derive(Debug)]
pub struct NotIsolated;

impl fmt::Display for NotIsolated {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("no private namespace here: use --isolation rewrite")
    }
}

/// Folder with the configuration of libibverbs.
pub const DRIVER_FOLDER: &str = "/etc/libibverbs.d";

/// Moves this process into a namespace that shows the files of `tree` and the
/// drivers of `drivers`. `stage` is an empty folder to build in.
///
/// # Errors
/// Not allowed here. The process may be half-way in a namespace then, and is of no further use.
pub fn enter(tree: &Path, drivers: &Path, stage: &Path) -> Result<()> {
    // SAFETY: no preconditions.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    if unshare(libc::CLONE_NEWNS).is_err() {
        unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS).context("no user namespaces for this user")?;
        // Who we are stays the same.
        fs::write("/proc/self/setgroups", "deny").context("cannot deny setgroups")?;
        fs::write("/proc/self/uid_map", format!("{user} {user} 1")).context("cannot map the user")?;
        fs::write("/proc/self/gid_map", format!("{group} {group} 1")).context("cannot map the group")?;
    }
    // What is mounted here stays here; what is mounted outside later still appears.
    mount(None, Path::new("/"), libc::MS_REC | libc::MS_SLAVE).context("cannot make mounts private")?;

    let class = Path::new("/sys/class");
    let devices = Path::new("/dev");
    stage_copy(class, stage, &["infiniband", "infiniband_verbs", "misc"])?;
    for name in ["infiniband", "infiniband_verbs"] {
        bind_folder(&tree.join("sys/class").join(name), &stage.join(name))?;
    }
    show_manager(class, tree, stage)?;
    move_to(stage, class)?;

    stage_copy(devices, stage, &["infiniband"])?;
    let nodes = stage.join("infiniband");
    fs::create_dir(&nodes)?;
    for node in fs::read_dir(tree.join("dev/infiniband"))? {
        bind_file(Path::new(discovery::NODE), &nodes.join(node?.file_name()))?;
    }
    move_to(stage, devices)?;

    if Path::new(DRIVER_FOLDER).is_dir() {
        bind(drivers, Path::new(DRIVER_FOLDER))?;
    }
    Ok(())
}

/// Adds the connection manager to the miscellaneous devices there are, which are links.
fn show_manager(class: &Path, tree: &Path, stage: &Path) -> Result<()> {
    let (old, new) = (class.join("misc"), stage.join("misc"));
    fs::create_dir(&new)?;
    // Where there is no such folder there is nothing to keep.
    for entry in fs::read_dir(old).into_iter().flatten() {
        let entry = entry?;
        if entry.file_name() != MANAGER && entry.file_type()?.is_symlink() {
            symlink(fs::read_link(entry.path())?, new.join(entry.file_name()))?;
        }
    }
    bind_folder(&tree.join("sys/class/misc").join(MANAGER), &new.join(MANAGER))
}

/// Mounts a tmpfs on `stage` that looks like `original` without the entries in `left_out`.
fn stage_copy(original: &Path, stage: &Path, left_out: &[&str]) -> Result<()> {
    mount_tmpfs(stage)?;
    for entry in fs::read_dir(original).with_context(|| format!("cannot read {}", original.display()))? {
        let entry = entry?;
        if left_out.iter().any(|name| entry.file_name() == *name) {
            continue;
        }
        let (from, to) = (entry.path(), stage.join(entry.file_name()));
        let kind = entry.file_type()?;
        if kind.is_symlink() {
            symlink(fs::read_link(&from)?, &to)?;
        } else if kind.is_dir() {
            bind_folder(&from, &to)?;
        } else {
            bind_file(&from, &to)?;
        }
    }
    Ok(())
}

fn bind_folder(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir(to).with_context(|| format!("cannot make {}", to.display()))?;
    bind(from, to)
}

fn bind_file(from: &Path, to: &Path) -> Result<()> {
    File::create(to).with_context(|| format!("cannot make {}", to.display()))?;
    bind(from, to)
}

fn bind(from: &Path, to: &Path) -> Result<()> {
    mount(Some(from), to, libc::MS_BIND | libc::MS_REC)
        .with_context(|| format!("cannot bind {} to {}", from.display(), to.display()))
}

fn move_to(from: &Path, to: &Path) -> Result<()> {
    mount(Some(from), to, libc::MS_MOVE).with_context(|| format!("cannot put {} in place", to.display()))
}

fn mount(from: Option<&Path>, to: &Path, flags: libc::c_ulong) -> Result<()> {
    let from = from.map(c_path).transpose()?;
    let from = from.as_ref().map_or(ptr::null(), |from| from.as_ptr());
    raw_mount(from, to, ptr::null(), flags, ptr::null())
}

fn mount_tmpfs(on: &Path) -> Result<()> {
    let kind = c"tmpfs".as_ptr();
    raw_mount(kind, on, kind, libc::MS_NOSUID, c"mode=755".as_ptr().cast()).context("cannot mount a tmpfs")
}

fn raw_mount(
    from: *const libc::c_char,
    to: &Path,
    kind: *const libc::c_char,
    flags: libc::c_ulong,
    options: *const libc::c_void,
) -> Result<()> {
    let to = c_path(to)?;
    let to: &CStr = &to;
    // SAFETY: all strings are terminated or null where mount(2) allows it.
    if unsafe { libc::mount(from, to.as_ptr(), kind, flags, options) } != 0 {
        bail!(io::Error::last_os_error());
    }
    Ok(())
}

fn unshare(what: libc::c_int) -> Result<()> {
    // SAFETY: no pointers; this process has one thread.
    if unsafe { libc::unshare(what) } != 0 {
        bail!(io::Error::last_os_error());
    }
    Ok(())
}
