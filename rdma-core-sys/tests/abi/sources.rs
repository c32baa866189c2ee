//! An rdma-core source tree, and C files compiled against its headers.

use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::declarations::{LAYOUTS, Layout};

/// Names the folder of the sources.
const VARIABLE: &str = "IRDMA_RDMA_CORE_SOURCES";

/// A release of rdma-core in source form.
pub struct Release {
    suite: String,
    source: PathBuf,
    /// Its number: 44 of 44.0.
    pub number: u32,
    /// Its `IBVERBS_PABI_VERSION`.
    pub pabi: u32,
}

impl Release {
    /// The release of a suite; the reason if its sources are not there.
    pub fn find(suite: &str) -> Result<Release, String> {
        let folder = env::var_os(VARIABLE).ok_or_else(|| format!("{VARIABLE} is not set"))?;
        let source = Path::new(&folder).join(suite);
        let build = match fs::read_to_string(source.join("CMakeLists.txt")) {
            Ok(build) => build,
            Err(error) => return Err(format!("{}: {error}", source.display())),
        };
        let value = |name: &str| number_behind(&build, name).unwrap_or_else(|| panic!("{suite}: no {name}"));
        let (number, pabi) = (value("PACKAGE_VERSION"), value("IBVERBS_PABI_VERSION"));
        Ok(Release { suite: suite.to_owned(), source, number, pabi })
    }

    /// The releases in folders with other names than these.
    pub fn others(names: &[&str]) -> Vec<Release> {
        let folder = env::var_os(VARIABLE).map(fs::read_dir);
        let mut found: Vec<Release> = folder
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| entry.unwrap().file_name().into_string().ok())
            .filter(|name| !names.contains(&name.as_str()))
            .filter_map(|name| Release::find(&name).ok())
            .collect();
        found.sort_by_key(|release| release.number);
        found
    }

    /// Whether its libibverbs exports the private function `name`.
    pub fn exports(&self, name: &str) -> bool {
        let map = fs::read_to_string(self.source.join("libibverbs/libibverbs.map.in")).unwrap();
        let (_, private) = map.split_once("IBVERBS_PRIVATE_").unwrap();
        private.lines().any(|line| line.trim() == format!("{name};"))
    }

    /// The layout that the table gives this release.
    pub fn layout(&self) -> &'static Layout {
        LAYOUTS
            .iter()
            .find(|layout| (layout.first..=layout.last).contains(&self.number))
            .unwrap_or_else(|| panic!("no layout for rdma-core {}", self.number))
    }

    /// Compiles `text` behind the private headers; panics with the compiler's words if it is refused.
    pub fn compile(&self, text: &str) {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(&self.suite);
        let _ = fs::remove_dir_all(&folder);
        let include = folder.join("include");
        fs::create_dir_all(include.join("kernel-abi")).unwrap();
        fs::create_dir_all(include.join("infiniband")).unwrap();
        for (name, part) in [("ccan", "ccan"), ("util", "util"), ("rdma", "kernel-headers/rdma")] {
            symlink(self.source.join(part), include.join(name)).unwrap();
        }
        // As rdma-core's build publishes them: its own headers and one of the kernel's.
        let kernel = self.source.join("kernel-headers/rdma/ib_user_ioctl_verbs.h");
        let own = fs::read_dir(self.source.join("libibverbs")).unwrap().map(|entry| entry.unwrap().path());
        for header in
            own.chain([kernel]).filter(|path| path.extension().is_some_and(|extension| extension == "h"))
        {
            symlink(&header, include.join("infiniband").join(header.file_name().unwrap())).unwrap();
        }
        fs::write(include.join("config.h"), "").unwrap();
        let core = fs::read_to_string(include.join("rdma/ib_user_verbs.h")).unwrap();
        fs::write(include.join("kernel-abi/ib_user_verbs.h"), loose_members(&core)).unwrap();
        let file = folder.join("assertions.c");
        fs::write(&file, format!("#include <infiniband/driver.h>\n#include <stddef.h>\n{text}")).unwrap();
        let output = Command::new(env::var_os("CC").unwrap_or_else(|| "cc".into()))
            .args(["-std=gnu11", "-fsyntax-only", "-D_GNU_SOURCE"])
            .arg(format!("-DIBVERBS_PABI_VERSION={}", self.pabi))
            .arg("-I")
            .arg(&include)
            .arg(&file)
            .output()
            .expect("a C compiler");
        assert!(output.status.success(), "{}:\n{}", self.suite, String::from_utf8_lossy(&output.stderr));
    }
}

/// The first number behind `name` in a CMake file: `set(NAME "44.0")`.
fn number_behind(text: &str, name: &str) -> Option<u32> {
    let line = text
        .lines()
        .find(|line| line.trim_start().to_lowercase().starts_with("set(") && line.contains(name))?;
    let digits = line.split('"').nth(1)?;
    digits.split('.').next()?.parse().ok()
}

/// The header that rdma-core's build generates: a macro for each core struct with its
/// members, for use without a name. Empty structs have no effect on a layout; the one
/// member that an inline function names is there.
fn loose_members(core: &str) -> String {
    core.lines()
        .filter_map(|line| line.strip_prefix("struct ")?.strip_suffix(" {"))
        .map(|name| {
            let members = if name == "ib_uverbs_ex_create_qp" { "__aligned_u64 user_handle;" } else { "" };
            format!("#define _STRUCT_{name} struct {{ {members} }}\n")
        })
        .collect()
}
