//! The guest's kernel, and those of its modules that the guest loads.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow, bail};

use super::packages::Set;

/// What is loaded; what these depend on comes along.
const WANTED: &[&str] = &[
    // The guest's disk, and the layer that makes it writable.
    "virtio_blk",
    "ext4",
    "overlay",
    // What the tests are about. irdma needs the other two network drivers' symbols.
    "idpf",
    "ice",
    "i40e",
    "irdma",
    "ib_uverbs",
    "ib_umad",
    "rdma_cm",
    "rdma_ucm",
];

/// An unpacked kernel.
pub struct Kernel {
    /// Its release, as uname tells it.
    pub release: String,
    /// The image to boot.
    pub image: PathBuf,
    /// Holds its modules.
    folder: PathBuf,
}

/// Modules that belong together, each decompressed in a file of its own.
pub struct Modules {
    /// Holds them.
    pub folder: PathBuf,
    /// Names of the files, each behind those that it depends on.
    pub order: Vec<String>,
    /// What each depends on, in the same order.
    pub dependencies: BTreeMap<String, Vec<String>>,
}

impl Kernel {
    /// The one of the set of packages.
    pub fn unpacked() -> Result<Kernel> {
        let kernels = Set::Machine.unpacked()?.join("usr/lib/modules");
        let releases: Vec<_> = fs::read_dir(&kernels)?.flatten().map(|entry| entry.file_name()).collect();
        let [release] = &releases[..] else { bail!("{} should hold one kernel", kernels.display()) };
        let folder = kernels.join(release);
        let release = release.to_string_lossy().into_owned();
        Ok(Kernel { release, image: folder.join("vmlinuz"), folder })
    }

    /// The modules that the guest loads.
    pub fn modules(&self) -> Result<Modules> {
        let mut compressed = HashMap::new();
        find(&self.folder.join("kernel"), &mut compressed)?;
        // In the root itself, so that they go when the kernel is another.
        let folder = Set::Machine.unpacked()?.join("modules");
        fs::create_dir_all(&folder)?;
        let mut modules = Modules { folder, order: Vec::new(), dependencies: BTreeMap::new() };
        for name in WANTED {
            modules.add(name, &compressed)?;
        }
        Ok(modules)
    }
}

impl Modules {
    fn add(&mut self, name: &str, compressed: &HashMap<String, PathBuf>) -> Result<()> {
        let file = format!("{name}.ko");
        if self.dependencies.contains_key(&file) {
            return Ok(());
        }
        let source =
            compressed.get(name).ok_or_else(|| anyhow!("the guest's kernel has no module {name}"))?;
        let module = self.folder.join(&file);
        decompress(source, &module)?;
        let dependencies = dependencies(&fs::read(&module)?)
            .with_context(|| format!("{} names no dependencies", source.display()))?;
        for dependency in &dependencies {
            self.add(dependency, compressed)?;
        }
        let dependencies = dependencies.iter().map(|name| format!("{name}.ko")).collect();
        self.dependencies.insert(file.clone(), dependencies);
        self.order.push(file);
        Ok(())
    }

    /// What busybox's modprobe reads: `modules.dep` as depmod(8) makes it, all dependencies in each line.
    pub fn index(&self) -> String {
        let line = |file: &String| {
            let mut needed = Vec::new();
            self.collect(file, &mut needed);
            format!("{file}: {}\n", needed.join(" "))
        };
        self.order.iter().map(line).collect()
    }

    /// The dependencies of `file`, the ones to load last at the front.
    fn collect<'modules>(&'modules self, file: &str, needed: &mut Vec<&'modules str>) {
        for dependency in &self.dependencies[file] {
            needed.retain(|other| other != dependency);
            needed.push(dependency);
            self.collect(dependency, needed);
        }
    }
}

fn decompress(source: &Path, module: &Path) -> Result<()> {
    if module.exists() {
        return Ok(());
    }
    let partial = module.with_extension("partial");
    let output = fs::File::create(&partial)?;
    let status = Command::new("xz").args(["--decompress", "--stdout"]).arg(source).stdout(output).status();
    if !status.context("cannot start xz (package xz-utils)")?.success() {
        bail!("{} cannot be decompressed", source.display());
    }
    Ok(fs::rename(&partial, module)?)
}

/// Every compressed module below `folder`, by the name that others depend on it by.
fn find(folder: &Path, found: &mut HashMap<String, PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            find(&entry.path(), found)?;
        } else if let Some(name) = entry.file_name().to_str().and_then(|name| name.strip_suffix(".ko.xz")) {
            found.insert(name.replace('-', "_"), entry.path());
        }
    }
    Ok(())
}

/// What `.modinfo` of a module says it depends on.
fn dependencies(module: &[u8]) -> Option<Vec<String>> {
    const KEY: &[u8] = b"\0depends=";
    let start = module.windows(KEY.len()).position(|window| window == KEY)? + KEY.len();
    let length = module[start..].iter().position(|byte| *byte == 0)?;
    let names = std::str::from_utf8(&module[start..start + length]).ok()?;
    Some(names.split(',').filter(|name| !name.is_empty()).map(|name| name.replace('-', "_")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_are_read_out_of_modinfo() {
        assert_eq!(dependencies(b"x\0depends=ib-core,ice\0name=").unwrap(), ["ib_core", "ice"]);
        assert_eq!(dependencies(b"x\0depends=\0").unwrap(), [""; 0]);
        assert_eq!(dependencies(b"x\0name=y\0"), None);
    }

    #[test]
    fn index_names_what_is_needed_indirectly_behind_what_needs_it() {
        let of = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let dependencies = [("a", &["b", "c"][..]), ("b", &["c"]), ("c", &[])];
        let modules = Modules {
            folder: PathBuf::new(),
            order: of(&["c", "b", "a"]),
            dependencies: dependencies.map(|(name, needed)| (name.to_owned(), of(needed))).into(),
        };
        assert_eq!(modules.index(), "c: \nb: c\na: b c\n");
    }
}
