//! What the guest boots with: its first program, the kernel's modules, and all that is ours.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::archive::Archive;
use super::kernel::{Kernel, Modules};
use crate::workspace::root;

/// Where ours lies in the guest.
const OURS: &str = "usr/lib/irdma-vm";

/// Where the guest's libibverbs looks for its providers.
const PROVIDERS: &str = "usr/lib/x86_64-linux-gnu/libibverbs";

/// Modules without which there is no root to go over to.
const BOOT: &[&str] = &["virtio_blk", "ext4", "overlay"];

/// What differs from guest to guest.
pub struct Contents<'files> {
    /// The agent.
    pub agent: &'files Path,
    /// `irdma-check`.
    pub checker: &'files Path,
    /// The provider that takes the place of the distribution's.
    pub plugin: Option<&'files Path>,
    /// The module that takes the place of ice.ko.
    pub stand_in: Option<&'files Path>,
}

/// The initial file system.
pub fn make(kernel: &Kernel, busybox: &Path, contents: &Contents) -> Result<Vec<u8>> {
    let modules = kernel.modules()?;
    let mut archive = Archive::default();
    for folder in ["proc", "dev", "lower", "upper", "root"] {
        archive.add_folder(folder);
    }
    archive.add_from("bin/busybox", busybox)?;
    archive.add_from("init", &root().join("vm/guest/init"))?;
    let (boot, later) = divided(&modules);
    let folder = format!("overlay/usr/lib/modules/{}", kernel.release);
    for module in &modules.order {
        archive.add_from(&format!("{folder}/{module}"), &modules.folder.join(module))?;
    }
    let boot = boot.iter().map(|module| format!("/overlay/usr/lib/modules/{}/{module}\n", kernel.release));
    archive.add("boot-modules", boot.collect::<String>().as_bytes());
    archive.add(&format!("{folder}/order"), format!("{}\n", later.join("\n")).as_bytes());
    archive.add(&format!("{folder}/modules.dep"), modules.index().as_bytes());

    for folder in ["vm/guest", "vm/tests"] {
        let programs = root().join(folder);
        for entry in fs::read_dir(&programs).with_context(|| format!("cannot read {}", programs.display()))? {
            let entry = entry?;
            let name = entry.file_name();
            archive.add_from(&format!("overlay/{OURS}/{}", name.to_string_lossy()), &entry.path())?;
        }
    }
    archive.add_from(&format!("overlay/{OURS}/agent"), contents.agent)?;
    archive.add_from("overlay/usr/bin/irdma-check", contents.checker)?;
    archive.add_from(&format!("overlay/{OURS}/suite.py"), &root().join("tests/programs/suite.py"))?;
    if let Some(stand_in) = contents.stand_in {
        archive.add_from(&format!("overlay/{OURS}/ice.ko"), stand_in)?;
    }
    if let Some(plugin) = contents.plugin {
        archive.add_from(&format!("overlay/{PROVIDERS}/libirdma-rdmav65.so"), plugin)?;
    }
    Ok(archive.finish())
}

/// The modules that the boot needs, and the others, each in the order of loading.
fn divided(modules: &Modules) -> (Vec<String>, Vec<String>) {
    let mut needed: Vec<String> = BOOT.iter().map(|name| format!("{name}.ko")).collect();
    let mut next = 0;
    while next < needed.len() {
        needed.extend(modules.dependencies.get(&needed[next]).cloned().unwrap_or_default());
        next += 1;
    }
    modules.order.iter().cloned().partition(|module| needed.contains(module))
}
