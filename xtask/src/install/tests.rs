//! Installations on folders that look like systems: whole, interrupted at every point, refused.

mod dpkg;
mod faults;
mod killed;
mod links;
mod newer;
mod refused;
mod staged;
mod upgraded;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Result, bail};

use super::changes::{self, Parcel};
use super::site::Site;
use super::steps::{Killed, Steps};
use super::system::System;
use super::tools::{self, Tool};
use crate::layout::triplet;

const OURS: &[u8] = b"our plugin";
const NEWER: &[u8] = b"our plugin, a newer one";
const THEIRS: &str = "the distribution's plugin";

/// A folder like a system's root; it goes with this value.
struct Root {
    folder: PathBuf,
    libraries: &'static str,
}

/// What the system has.
#[derive(Clone, Copy, Debug)]
struct Has {
    dpkg: bool,
    plugin: bool,
    driver_file: bool,
}

const SYSTEMS: [Has; 5] = [
    Has { dpkg: true, plugin: true, driver_file: true },
    Has { dpkg: true, plugin: false, driver_file: false },
    Has { dpkg: false, plugin: true, driver_file: true },
    Has { dpkg: false, plugin: true, driver_file: false },
    Has { dpkg: false, plugin: false, driver_file: false },
];

/// A new one for a test of that name, which may run beside others; in memory if there is such a place: each step waits
/// until its file is kept.
fn folder_for(name: &str) -> PathBuf {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let memory = PathBuf::from("/dev/shm");
    let folders = if memory.is_dir() { memory } else { std::env::temp_dir() };
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let folder = folders.join(format!("irdma-install-{name}-{}-{number}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

impl Root {
    fn new(name: &str, has: Has) -> Root {
        Root::in_folder(folder_for(name), has)
    }

    fn in_folder(folder: PathBuf, has: Has) -> Root {
        let libraries = if has.dpkg { "usr/lib/multiarch" } else { "usr/lib64" };
        let root = Root { folder, libraries };
        fs::create_dir_all(root.folder.join("etc")).unwrap();
        fs::create_dir_all(root.folder.join("usr/local/bin")).unwrap();
        root.put_library("1.14.44.0", 34);
        if has.plugin {
            root.put(&root.plugin(), THEIRS);
        } else {
            fs::remove_dir_all(root.plugin().parent().unwrap()).ok();
        }
        if has.driver_file {
            // Without an end of the last line.
            root.put(Path::new("etc/libibverbs.d/irdma.driver"), "# comment\ndriver irdma");
            root.put(Path::new("etc/libibverbs.d/mlx5.driver"), "driver mlx5\n");
        }
        if has.dpkg {
            root.put(Path::new("var/lib/dpkg/status"), "");
            root.put(Path::new("var/lib/dpkg/diversions"), "/a\n/a.other\nsomebody\n");
            fs::create_dir_all(root.folder.join("var/lib/dpkg/info")).unwrap();
            fs::create_dir_all(root.folder.join("var/lib/dpkg/updates")).unwrap();
        }
        root
    }

    /// libibverbs, as far as it is looked at. Multiarch as on this machine.
    fn put_library(&self, version: &str, pabi: u32) {
        let libraries = self.libraries();
        let text = format!(
            "\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0/etc/libibverbs.d\0/{}/libibverbs/lib%s-rdmav{pabi}.so\0",
            libraries.display()
        );
        let file = libraries.join(format!("libibverbs.so.{version}"));
        self.put(&file, &text);
        let link = self.folder.join(libraries).join("libibverbs.so.1");
        let _ = fs::remove_file(&link);
        symlink(file.file_name().unwrap(), link).unwrap();
    }

    fn libraries(&self) -> PathBuf {
        self.libraries.replace("multiarch", &triplet()).into()
    }

    fn plugin(&self) -> PathBuf {
        self.libraries().join("libibverbs/libirdma-rdmav34.so")
    }

    fn put(&self, path: &Path, text: &str) {
        let file = self.folder.join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    }

    fn system(&self) -> System {
        System::find(&self.folder, None).unwrap()
    }

    fn install(&self, steps: &mut Steps) -> Result<()> {
        self.install_this(OURS, steps)
    }

    fn install_this(&self, plugin: &[u8], steps: &mut Steps) -> Result<()> {
        install(&self.folder, plugin, steps)
    }

    fn uninstall(&self, steps: &mut Steps) -> Result<bool> {
        uninstall(&self.folder, steps)
    }

    /// Every file, folder and link: what it is, what is in it, its mode, and when a file was changed.
    fn look(&self) -> BTreeMap<PathBuf, String> {
        let mut found = BTreeMap::new();
        let mut waiting = vec![self.folder.clone()];
        while let Some(folder) = waiting.pop() {
            for entry in fs::read_dir(&folder).unwrap() {
                let path = entry.unwrap().path();
                let properties = path.symlink_metadata().unwrap();
                let what = if properties.is_dir() {
                    waiting.push(path.clone());
                    format!("folder {:o}", properties.mode())
                } else if properties.is_symlink() {
                    format!("link to {}", fs::read_link(&path).unwrap().display())
                } else {
                    let text = String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned();
                    format!("file {:o} of {}: {text}", properties.mode(), properties.mtime_nsec())
                };
                let path = path.strip_prefix(&self.folder).unwrap().to_owned();
                // dpkg writes the list of diversions anew, keeps a copy, and may leave what it could not finish.
                match path.to_str().unwrap() {
                    "var/lib/dpkg/diversions-old" | "var/lib/dpkg/diversions-new" => {}
                    "var/lib/dpkg/diversions" => {
                        let (_, text) = what.split_once(": ").unwrap();
                        found.insert(path, text.to_owned());
                    }
                    _ => {
                        found.insert(path, what);
                    }
                }
            }
        }
        found
    }

    /// As [`Root::look`], without the times of files that are written anew.
    fn look_at_content(&self) -> BTreeMap<PathBuf, String> {
        let without_time = |what: String| match what.split_once(" of ") {
            Some((kind, rest)) => format!("{kind}{}", rest.split_once(':').unwrap().1),
            None => what,
        };
        self.look().into_iter().map(|(path, what)| (path, without_time(what))).collect()
    }

    /// What holds at every moment: libibverbs finds whole files only, and a plugin if it ever did.
    fn is_usable(&self, has: Has) {
        let system = self.system();
        match fs::read(system.at(&Path::new("/").join(self.plugin()))) {
            Ok(bytes) => assert!(bytes == OURS || bytes == THEIRS.as_bytes(), "half a plugin"),
            Err(_) => assert!(!has.plugin, "no plugin"),
        }
        let own = system.at(&system.own);
        for (file, text) in system.driver_files().unwrap() {
            assert_eq!(file, Path::new("/etc/libibverbs.d/irdma.driver"));
            let last = text.lines().last().unwrap();
            let is_ours = last.contains("irdma-provider/libirdma");
            assert!(!is_ours || own.join("libirdma-rdmav34.so").exists(), "{last} leads nowhere");
            assert!(is_ours || last == "driver irdma", "{last}");
        }
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn install(root: &Path, plugin: &[u8], steps: &mut Steps) -> Result<()> {
    let parcel = Parcel { plugin, tools: &tools() };
    changes::install(&System::find(root, None)?, &parcel, steps, |file| {
        if fs::read(file)? != plugin {
            bail!("{} is not the plugin", file.display());
        }
        Ok(())
    })
    .map(|_| ())
}

fn uninstall(root: &Path, steps: &mut Steps) -> Result<bool> {
    let mut was_installed = false;
    for site in Site::all(root, None)? {
        was_installed |= changes::uninstall(&site, steps)?;
    }
    Ok(was_installed)
}

/// As they come with the plugin, with one page only, into folders of which the system has the first.
fn tools() -> Vec<Tool> {
    let folder = tools::folder(None);
    tools::tools(&folder, b"our program".into(), vec![("irdma-check.1", "our page".to_owned())])
}

fn is_killed(result: &Result<()>) -> bool {
    result.as_ref().is_err_and(|error| error.is::<Killed>())
}

#[test]
fn an_installation_is_undone_byte_for_byte() {
    for has in SYSTEMS {
        let root = Root::new("whole", has);
        let before = root.look();
        root.install(&mut Steps::all()).unwrap();
        root.is_usable(has);
        let installed = root.look();
        assert_ne!(before, installed);
        // A second one changes nothing that can be seen.
        let content = root.look_at_content();
        root.install(&mut Steps::all()).unwrap();
        assert_eq!(root.look_at_content(), content, "{has:?}");
        assert!(root.uninstall(&mut Steps::all()).unwrap());
        assert_eq!(root.look(), before, "{has:?}");
        assert!(!root.uninstall(&mut Steps::all()).unwrap());
        assert_eq!(root.look(), before, "{has:?}");
    }
}

#[test]
fn an_installation_that_was_killed_is_repaired_by_a_second_one_and_undone() {
    for has in SYSTEMS {
        let root = Root::new("killed", has);
        let before = root.look();
        root.install(&mut Steps::all()).unwrap();
        let whole = root.look_at_content();
        root.uninstall(&mut Steps::all()).unwrap();
        let mut points = 0;
        loop {
            let result = root.install(&mut Steps::first(points));
            if !is_killed(&result) {
                result.unwrap();
                root.uninstall(&mut Steps::all()).unwrap();
                break;
            }
            root.is_usable(has);
            root.install(&mut Steps::all()).unwrap();
            assert_eq!(root.look_at_content(), whole, "{has:?}, killed at {points}");
            root.uninstall(&mut Steps::all()).unwrap();
            assert_eq!(root.look(), before, "{has:?}, killed at {points}");
            assert!(is_killed(&root.install(&mut Steps::first(points))));
            root.uninstall(&mut Steps::all()).unwrap();
            assert_eq!(root.look(), before, "{has:?}, killed at {points} and undone");
            points += 1;
        }
        assert!(points >= 6, "{points} points only");
    }
}

#[test]
fn undoing_that_was_killed_is_repaired_by_a_second_one() {
    for has in SYSTEMS {
        let root = Root::new("undoing", has);
        let before = root.look();
        let mut points = 0;
        loop {
            root.install(&mut Steps::all()).unwrap();
            let whole = root.look_at_content();
            let result = root.uninstall(&mut Steps::first(points)).map(|_| ());
            if !is_killed(&result) {
                result.unwrap();
                break;
            }
            root.is_usable(has);
            root.uninstall(&mut Steps::all()).unwrap();
            assert_eq!(root.look(), before, "{has:?}, killed at {points}");
            root.install(&mut Steps::all()).unwrap();
            assert!(is_killed(&root.uninstall(&mut Steps::first(points)).map(|_| ())));
            root.install(&mut Steps::all()).unwrap();
            assert_eq!(root.look_at_content(), whole, "{has:?}, killed at {points} and installed again");
            root.uninstall(&mut Steps::all()).unwrap();
            points += 1;
        }
        assert!(points >= 4, "{points} points only");
        assert_eq!(root.look(), before, "{has:?}");
    }
}

#[test]
fn a_plugin_that_does_not_load_leaves_nothing() {
    for has in SYSTEMS {
        let root = Root::new("broken", has);
        let before = root.look();
        let parcel = Parcel { plugin: OURS, tools: &tools() };
        let result =
            changes::install(&root.system(), &parcel, &mut Steps::all(), |_| bail!("it does not load"));
        assert!(format!("{:#}", result.unwrap_err()).contains("everything is as before"));
        assert_eq!(root.look(), before, "{has:?}");
    }
}

/// A change to a system, and a word of the reason for which nothing is installed there then.
type Obstacle = (fn(&Root), &'static str);

#[test]
fn without_dpkg_uninstalling_needs_no_libibverbs_either() {
    for name in ["irdma.driver", "irdma.driver.rpmsave"] {
        let root = Root::new("erased", SYSTEMS[2]);
        let before = root.look();
        let drivers = root.folder.join("etc/libibverbs.d");
        let libraries = root.folder.join(root.libraries());
        root.install(&mut Steps::all()).unwrap();
        let ours = fs::read_to_string(drivers.join("irdma.driver")).unwrap();
        assert!(ours.contains("irdma-provider"));
        // As rpm does when it erases the package, or leaves the file if that is nobody's.
        fs::rename(drivers.join("irdma.driver"), drivers.join(name)).unwrap();
        fs::remove_dir_all(libraries.join("libibverbs")).unwrap();
        for file in ["libibverbs.so.1", "libibverbs.so.1.14.44.0"] {
            fs::remove_file(libraries.join(file)).unwrap();
        }
        assert!(root.uninstall(&mut Steps::all()).unwrap());
        let left = fs::read_to_string(drivers.join(name)).unwrap();
        assert_eq!(left.trim_end(), "# comment\ndriver irdma", "{name}");
        let of_libibverbs = |path: &Path| path.to_string_lossy().contains("libibverbs");
        let others = |look: BTreeMap<PathBuf, String>| -> Vec<_> {
            look.into_iter().filter(|(path, _)| !of_libibverbs(path)).collect()
        };
        assert_eq!(others(root.look()), others(before), "{name}");
        assert!(!root.uninstall(&mut Steps::all()).unwrap());
    }
}
