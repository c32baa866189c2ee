//! Builds the plugin for one rdma-core and puts it where a person finds it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};

use crate::layout::{LAYOUTS, Layout, layout_of};
use crate::suites::{self, SUITES};
use crate::workspace::{cargo, root, run as build_by, target};
use crate::{inspect, packages, shipped};

/// Which rdma-core the plugin is for: without either option, this machine's.
#[derive(clap::Args)]
pub struct Options {
    /// Build for the rdma-core of the distribution unpacked in this folder
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Build for this layout (34, 57, 59, 62, 64, 65): with --root, only if the folder's rdma-core
    /// is of it; else for this machine's rdma-core or a Debian suite's, if one of them is of it
    #[arg(long, value_name = "N")]
    layout: Option<u32>,
}

/// Builds, looks at what was built, and says where it is.
pub fn run(options: &Options) -> Result<ExitCode> {
    packages::install(packages::BUILD)?;
    let plugin = options.build()?;
    inspect::symbols(&plugin.library, plugin.layout)?;
    inspect::data_path(&plugin.unstripped)?;
    println!("{}", plugin.library.display());
    if options.root.is_none() && layout_of(None)? == plugin.layout {
        println!("Try it: RDMAV_DRIVERS={} ibv_devinfo", plugin.driver().display());
    } else {
        println!("For rdma-core {}", plugin.layout.releases());
    }
    Ok(ExitCode::SUCCESS)
}

impl Options {
    /// Builds for what was asked for.
    pub fn build(&self) -> Result<Plugin> {
        let wanted = self.layout.map(of_number).transpose()?;
        match (wanted, &self.root) {
            (None, root) => build(root.as_deref()),
            (Some(wanted), Some(root)) => {
                let found = layout_of(Some(root))?;
                if found != wanted {
                    bail!(
                        "{} has an rdma-core of layout {}, not {}",
                        root.display(),
                        found.number,
                        wanted.number
                    );
                }
                build(Some(root))
            }
            (Some(wanted), None) => of_layout(wanted),
        }
    }
}

/// Builds for a layout that this machine's libibverbs or a Debian suite's is of.
pub fn of_layout(wanted: &'static Layout) -> Result<Plugin> {
    if layout_of(None).is_ok_and(|found| found == wanted) {
        return build(None);
    }
    build(Some(&root_of(wanted)?))
}

/// The layout with that number.
pub fn of_number(number: u32) -> Result<&'static Layout> {
    LAYOUTS.iter().find(|layout| layout.number == number).ok_or_else(|| {
        let known: Vec<_> = LAYOUTS
            .iter()
            .map(|layout| format!("{} (rdma-core {})", layout.number, layout.releases()))
            .collect();
        anyhow!("there is no layout {number}; there are {}", known.join(", "))
    })
}

/// An unpacked root with a libibverbs of that layout, from a suite of Debian.
fn root_of(layout: &Layout) -> Result<PathBuf> {
    let fitting = SUITES.iter().find(|(_, release)| layout.has_release(*release));
    let Some((suite, release)) = fitting else {
        bail!(
            "neither this machine nor a suite of Debian has an rdma-core of layout {}: unpack libibverbs and its \
             development package of release {} into a folder and name that by --root",
            layout.number,
            layout.releases()
        );
    };
    suites::development_root(suite).with_context(|| {
        format!("no libibverbs of rdma-core {release} to build against; --root can name one")
    })
}

/// A plugin that was built.
pub struct Plugin {
    /// What it was built for.
    pub layout: &'static Layout,
    /// `libirdma-rdmavNN.so`, stripped.
    pub library: PathBuf,
    /// The same with its symbols.
    pub unstripped: PathBuf,
}

impl Plugin {
    /// What `RDMAV_DRIVERS` and a driver file take: the path without `-rdmavNN.so`.
    pub fn driver(&self) -> PathBuf {
        self.library.with_file_name("libirdma")
    }
}

/// Builds for this machine's libibverbs, or for the one in the unpacked distribution at `other`.
pub fn build(other: Option<&Path>) -> Result<Plugin> {
    let layout = layout_of(other)?;
    let mut command = cargo("build");
    command.args(["--quiet", "--release", "--package", "irdma"]);
    let mut built = target();
    if let Some(other) = other {
        let other = other.canonicalize().with_context(|| format!("no folder {}", other.display()))?;
        // Apart from this machine's, or each build would undo the other's.
        built = built.join(format!("layout-{}", layout.number));
        command.env("CARGO_TARGET_DIR", &built).env("IRDMA_RDMA_CORE_ROOT", other);
    }
    build_by(&mut command)?;
    let unstripped = built.join("release/libirdma.so");

    let folder = target().join("provider").join(layout.number.to_string());
    fs::create_dir_all(&folder)?;
    let library = folder.join(format!("libirdma-rdmav{}.so", layout.pabi));
    put(&library, |fresh| shipped::strip(&unstripped, fresh))?;
    put(&folder.join("irdma.driver"), |fresh| Ok(fs::copy(root().join("irdma.driver"), fresh).map(drop)?))?;
    Ok(Plugin { layout, library, unstripped })
}

/// Makes a file aside and moves it to its place: a running program may have the old one mapped, and another build
/// may put the same file there at this moment.
fn put(file: &Path, make: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(format!(".new-{}", std::process::id()));
    let fresh = file.with_file_name(name);
    let result = make(&fresh).and_then(|()| Ok(fs::rename(&fresh, file)?));
    if result.is_err() {
        // What was begun is of no use.
        let _ = fs::remove_file(&fresh);
    }
    result.with_context(|| format!("cannot make {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_made_leaves_the_old_one_alone() {
        let folder = std::env::temp_dir().join(format!("irdma-put-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("library");
        put(&file, |fresh| Ok(fs::write(fresh, "old")?)).unwrap();
        let fails = |fresh: &Path| {
            fs::write(fresh, "half")?;
            bail!("no room")
        };
        let error = put(&file, fails).unwrap_err();
        assert_eq!(format!("{error:#}"), format!("cannot make {}: no room", file.display()));
        assert_eq!(fs::read_to_string(&file).unwrap(), "old");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        fs::remove_dir_all(folder).unwrap();
    }
}
