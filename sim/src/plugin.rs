//! Which provider a program loads: ours or the distribution's, and never the other by accident.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;

/// Whose provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Provider {
    /// This project's
    Ours,
    /// The distribution's, written in C
    C,
}

/// What libibverbs is told to load.
#[derive(Debug, PartialEq, Eq)]
pub struct Driver {
    /// What stands behind `driver` in a driver file, and in `RDMAV_DRIVERS`: a name,
    /// or a path to which libibverbs adds `-rdmavNN.so`.
    pub name: PathBuf,
    /// Ours: also to be named in `RDMAV_DRIVERS`, for a libibverbs that reads its
    /// driver files from another folder than usual.
    pub ours: bool,
}

/// What ends a name in a driver file or in `RDMAV_DRIVERS`.
const SEPARATORS: &[u8] = b" \t\n:;";

/// Finds the driver. `given` is our plugin or its folder, if the user said where it is.
pub fn driver(provider: Provider, given: Option<&Path>) -> Result<Driver> {
    if provider == Provider::C {
        return Ok(Driver { name: "irdma".into(), ours: false });
    }
    let library = match given {
        Some(path) if path.is_dir() => library_in(path)?,
        Some(path) => path.to_owned(),
        None => {
            let folder = default_folder()?;
            library_in(&folder)?
        }
    };
    let library = library
        .canonicalize()
        .with_context(|| format!("no plugin {}: build it with `cargo xtask build`", library.display()))?;
    let (name, _) = split(&library)
        .with_context(|| format!("{} is not named like a plugin (libirdma-rdmavNN.so)", library.display()))?;
    ensure!(
        !name.as_os_str().as_bytes().iter().any(|byte| SEPARATORS.contains(byte)),
        "libibverbs cannot load {}: blanks, ':' and ';' end the path of a plugin; put it elsewhere",
        library.display()
    );
    Ok(Driver { name, ours: true })
}

/// `…/libirdma-rdmavNN.so` as `…/libirdma` and NN.
fn split(library: &Path) -> Option<(PathBuf, u32)> {
    let (stem, abi) = library.file_name()?.to_str()?.strip_suffix(".so")?.rsplit_once("-rdmav")?;
    Some((library.with_file_name(stem), abi.parse().ok()?))
}

/// The only plugin in a folder.
fn library_in(folder: &Path) -> Result<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| split(path).is_some())
        .collect();
    ensure!(found.len() < 2, "several plugins in {}: choose one with --plugin", folder.display());
    found
        .pop()
        .with_context(|| format!("no plugin in {}: build it with `cargo xtask build`", folder.display()))
}

/// Where `cargo xtask build` leaves the plugin for this machine: `provider/<layout>`
/// beside the folder of this program.
fn default_folder() -> Result<PathBuf> {
    let program = std::env::current_exe().context("cannot find this program's file")?;
    let target = program.ancestors().nth(2).unwrap_or(Path::new("/")).join("provider");
    let layouts: Vec<PathBuf> =
        fs::read_dir(&target).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())).collect();
    match &layouts[..] {
        [] => bail!("no plugin below {}: build it with `cargo xtask build`", target.display()),
        [only] => Ok(only.clone()),
        _ => {
            // Layouts are numbered by their first release: the machine's is the last that is not newer.
            let release = installed_release().context(
                "several plugins, and no libibverbs.so.1.*.RELEASE.* to choose by: choose with --plugin",
            )?;
            let number = |folder: &PathBuf| folder.file_name()?.to_str()?.parse::<u32>().ok();
            layouts
                .iter()
                .filter(|folder| number(folder).is_some_and(|number| number <= release))
                .max_by_key(|folder| number(folder))
                .cloned()
                .with_context(|| {
                    format!("no plugin for rdma-core {release}: build it with `cargo xtask build`")
                })
        }
    }
}

/// rdma-core release of the machine's libibverbs: the third number of its file name.
fn installed_release() -> Option<u32> {
    let triplet = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    [triplet.as_str(), "/usr/lib64", "/usr/lib", "/usr/local/lib"].iter().find_map(|folder| {
        let library = Path::new(folder).join("libibverbs.so.1").canonicalize().ok()?;
        release_of(library.file_name()?.to_str()?)
    })
}

/// 44 of `libibverbs.so.1.14.44.0`.
fn release_of(name: &str) -> Option<u32> {
    name.strip_prefix("libibverbs.so.1.")?.split('.').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_is_known_by_its_name() {
        let parts = split(Path::new("/x/libirdma-rdmav34.so")).unwrap();
        assert_eq!(parts, (PathBuf::from("/x/libirdma"), 34));
        for wrong in ["/x/libirdma.so", "/x/libirdma-rdmav.so", "/x/libirdma-rdmav34.so.1", "/"] {
            assert_eq!(split(Path::new(wrong)), None, "{wrong}");
        }
    }

    #[test]
    fn releases_are_read_from_library_names() {
        assert_eq!(release_of("libibverbs.so.1.14.44.0"), Some(44));
        assert_eq!(release_of("libibverbs.so.1.18.65.0"), Some(65));
        assert_eq!(release_of("libibverbs.so.1"), None);
    }

    #[test]
    fn a_plugin_that_libibverbs_would_not_find_is_refused() {
        for name in ["with blank", "with:colon", "with;semicolon"] {
            let folder = std::env::temp_dir().join(format!("irdma-sim-{}-{name}", std::process::id()));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("libirdma-rdmav34.so"), "").unwrap();
            let result = driver(Provider::Ours, Some(&folder));
            fs::remove_dir_all(&folder).unwrap();
            let error = format!("{:#}", result.unwrap_err());
            assert!(error.contains("put it elsewhere"), "{error}");
        }
    }

    #[test]
    fn a_missing_plugin_names_the_command_that_builds_it() {
        let error = driver(Provider::Ours, Some(Path::new("/nowhere/libirdma-rdmav34.so"))).unwrap_err();
        assert!(format!("{error:#}").contains("cargo xtask build"), "{error:#}");
        assert_eq!(driver(Provider::C, None).unwrap(), Driver { name: "irdma".into(), ours: false });
    }
}
