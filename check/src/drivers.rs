//! Who names a provider for irdma devices: the environment and libibverbs' driver files.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::files::{Root, shown};
use crate::library::Library;
use crate::plugin::Plugin;

/// Where driver files are, if libibverbs does not say.
const FOLDER: &str = "/etc/libibverbs.d";

/// Variables that libibverbs looks at; the second only without the first.
const VARIABLES: [&str; 2] = ["RDMAV_DRIVERS", "IBV_DRIVERS"];

/// A place that names the provider.
#[derive(Debug, Serialize)]
pub struct Driver {
    /// A variable, or a driver file.
    pub source: String,
    /// Line of the driver file, from 1.
    pub line: Option<usize>,
    /// As it is named there.
    pub name: String,
    /// The plugin that libibverbs looks for; none if it is not known where.
    pub plugin: Option<Plugin>,
    /// Whether there is such a file.
    pub exists: bool,
}

/// What names providers.
#[derive(Debug, Default)]
pub struct Drivers {
    /// For irdma, in the order in which libibverbs goes through them.
    pub named: Vec<Driver>,
    /// Driver files that cannot be read, and why.
    pub unreadable: Vec<(String, String)>,
}

impl Drivers {
    /// Of that system; `variable` gives what the environment says.
    pub fn find(root: &Root, library: &Library, variable: impl Fn(&str) -> Option<String>) -> Drivers {
        let mut drivers = Drivers::default();
        let set = VARIABLES.into_iter().find_map(|name| Some((name, variable(name)?)));
        if let Some((source, names)) = set {
            let names = names.split([':', ';']).filter(|name| !name.is_empty());
            let named = names.map(|name| Driver::of(root, library, source, None, name));
            // By whatever name: of others' plugins only those that say so are ours.
            drivers.named.extend(named.filter(|driver| driver.is_for_irdma()));
        }
        let folder = library.places.as_ref().map_or(Path::new(FOLDER), |places| &places.drivers);
        let mut of_files = Vec::new();
        for name in root.names(folder) {
            let file = folder.join(name);
            // As libibverbs passes over them.
            if root.at(&file).metadata().is_ok_and(|about| !about.is_file()) {
                continue;
            }
            let source = shown(&file.to_string_lossy());
            match root.text(&file) {
                Ok(text) => {
                    let lines = text.lines().enumerate();
                    let named = lines.filter_map(|(line, text)| Some((line + 1, driver_of(text)?)));
                    of_files.extend(
                        named
                            .filter(|(_, name)| names_irdma(name))
                            .map(|(line, name)| Driver::of(root, library, &source, Some(line), name)),
                    );
                }
                Err(error) => drivers.unreadable.push((source, error.to_string())),
            }
        }
        // What is named last is loaded first.
        drivers.named.extend(of_files.into_iter().rev());
        drivers
    }

    /// The driver files that name irdma, each once.
    pub fn files(&self) -> Vec<&str> {
        let mut files: Vec<&str> =
            self.named.iter().filter(|driver| driver.line.is_some()).map(|driver| &*driver.source).collect();
        files.sort_unstable();
        files.dedup();
        files
    }
}

impl Driver {
    fn of(root: &Root, library: &Library, source: &str, line: Option<usize>, name: &str) -> Driver {
        let file = plugin_file(library, name);
        let file = file.map(|file| if file.is_absolute() { root.at(file) } else { file });
        Driver {
            source: source.to_owned(),
            line,
            name: shown(name),
            exists: file.as_ref().is_some_and(|file| file.exists()),
            plugin: file.map(|file| Plugin::of(root, &file)),
        }
    }

    fn is_for_irdma(&self) -> bool {
        names_irdma(&self.name) || self.plugin.as_ref().is_some_and(|plugin| plugin.version.is_some())
    }

    /// Where it is named, in words.
    pub fn place(&self) -> String {
        match self.line {
            Some(line) => format!("{}:{line}", self.source),
            None => self.source.clone(),
        }
    }
}

/// What a line of a driver file names.
fn driver_of(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace();
    (words.next() == Some("driver")).then(|| words.next()).flatten()
}

/// Whether a name, or the end of a path, is that of this provider.
fn names_irdma(name: &str) -> bool {
    matches!(name.rsplit('/').next(), Some("irdma" | "libirdma"))
}

/// The file that libibverbs looks for.
fn plugin_file(library: &Library, name: &str) -> Option<PathBuf> {
    let number = library.private_interface?;
    if name.contains('/') {
        return Some(format!("{name}-rdmav{number}.so").into());
    }
    Some(library.places.as_ref()?.plugins.join(format!("lib{name}-rdmav{number}.so")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Tree;

    fn find(tree: &Tree, variables: &[(&str, &str)]) -> Drivers {
        let root = tree.root();
        let library = Library::find(&root, None);
        Drivers::find(&root, &library, |name| {
            Some(variables.iter().find(|(variable, _)| *variable == name)?.1.to_owned())
        })
    }

    fn places(drivers: &Drivers) -> Vec<String> {
        drivers.named.iter().map(Driver::place).collect()
    }

    #[test]
    fn a_driver_file_names_a_plugin_by_name() {
        let tree = Tree::with_device("drivers");
        let drivers = find(&tree, &[]);
        assert_eq!(places(&drivers), ["/etc/libibverbs.d/irdma.driver:1"]);
        let plugin = drivers.named[0].plugin.as_ref().unwrap();
        assert_eq!(plugin.file, "/usr/lib64/libibverbs/libirdma-rdmav34.so");
        assert!(drivers.named[0].exists && plugin.error.is_none());
    }

    #[test]
    fn the_environment_comes_first_and_the_last_line_next() {
        let tree = Tree::with_device("drivers-order");
        tree.file("etc/libibverbs.d/irdma.driver", "# c\ndriver irdma\ndriver\t/opt/x/libirdma\ndriver\n");
        let set = [("RDMAV_DRIVERS", "/a/libirdma:mlx5;;irdma"), ("IBV_DRIVERS", "/b/libirdma")];
        let drivers = find(&tree, &set);
        let file = "/etc/libibverbs.d/irdma.driver";
        let in_order = ["RDMAV_DRIVERS", "RDMAV_DRIVERS", &format!("{file}:3"), &format!("{file}:2")];
        assert_eq!(places(&drivers), in_order);
        assert_eq!(drivers.named[0].plugin.as_ref().unwrap().file, "/a/libirdma-rdmav34.so");
        assert_eq!(drivers.files(), [file]);
        assert_eq!(places(&find(&tree, &set[1..]))[0], "IBV_DRIVERS");
    }

    #[test]
    fn files_that_are_none_are_told_and_skipped() {
        let tree = Tree::with_device("drivers-hostile");
        tree.pipe("etc/libibverbs.d/pipe.driver");
        tree.bytes("etc/libibverbs.d/binary.driver", &[0, 0xff, b'\n', 0x1b]);
        tree.link("etc/libibverbs.d/nowhere.driver", "none");
        tree.file("etc/libibverbs.d/long.driver", &"driver irdma\n".repeat(10_000));
        tree.file("etc/libibverbs.d/folder/irdma.driver", "driver irdma\n");
        let drivers = find(&tree, &[]);
        assert_eq!(drivers.named.len(), 1);
        let unreadable: Vec<_> = drivers.unreadable.iter().map(|(file, _)| file.as_str()).collect();
        assert_eq!(unreadable, ["/etc/libibverbs.d/long.driver", "/etc/libibverbs.d/nowhere.driver"]);
    }

    #[test]
    fn without_a_library_names_lead_nowhere() {
        let tree = Tree::with_device("drivers-alone");
        tree.remove("usr/lib64");
        let drivers = find(&tree, &[]);
        assert_eq!(drivers.named.len(), 1);
        assert_eq!(drivers.named[0].plugin, None);
    }
}
