//! dpkg upgrades, removes and brings back the distribution's packages while ours is installed.

use std::process::Command;

use super::*;
use crate::workspace::read;

const PLUGINS: &str = "ibverbs-providers";
const LIBRARY: &str = "libibverbs1";

impl Root {
    /// One whose libibverbs and plugins are of packages; dpkg unpacks them as root only.
    fn of_packages(name: &str) -> Option<Root> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("not tested: dpkg installs as root only");
            return None;
        }
        let root = Root::new(name, SYSTEMS[1]);
        fs::remove_dir_all(root.folder.join("usr")).unwrap();
        fs::create_dir_all(root.folder.join("usr/local/bin")).unwrap();
        fs::write(root.folder.join("var/lib/dpkg/diversions"), "").unwrap();
        for folder in ["info", "updates", "triggers"] {
            fs::create_dir_all(root.folder.join("var/lib/dpkg").join(folder)).unwrap();
        }
        root.put(Path::new("var/lib/dpkg/available"), "");
        root.put(&root.libraries().join("libc.so.6"), "another package's");
        root.upgrade("1");
        Some(root)
    }

    /// Installs both packages in that version. The plugin's text has it.
    fn upgrade(&self, version: &str) {
        let library = Root::new(&format!("library-{version}"), SYSTEMS[1]);
        for rest in ["etc", "var", "usr/local"] {
            fs::remove_dir_all(library.folder.join(rest)).unwrap();
        }
        let plugins = Root { folder: folder_for(&format!("plugins-{version}")), libraries: self.libraries };
        plugins.put(&plugins.plugin(), &format!("{THEIRS}, {version}"));
        plugins.put(Path::new("etc/libibverbs.d/irdma.driver"), "driver irdma\n");
        plugins.put(Path::new("DEBIAN/conffiles"), "/etc/libibverbs.d/irdma.driver\n");
        for (name, tree) in [(LIBRARY, &library), (PLUGINS, &plugins)] {
            let control = format!(
                "Package: {name}\nVersion: {version}\nArchitecture: all\nMaintainer: A <a@b>\nDescription: x\n"
            );
            tree.put(Path::new("DEBIAN/control"), &control);
            for file in ["", "/control", "/conffiles"].map(|file| tree.folder.join(format!("DEBIAN{file}"))) {
                if let Ok(found) = file.metadata() {
                    let mode = if found.is_dir() { 0o755 } else { 0o644 };
                    fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
                }
            }
            let package = tree.folder.with_extension("deb");
            let mut pack = Command::new("dpkg-deb");
            pack.args(["-Znone", "--root-owner-group", "--build"]);
            read(pack.arg(&tree.folder).arg(&package)).unwrap();
            self.dpkg(&["--install", package.to_str().unwrap()]);
            fs::remove_file(package).unwrap();
        }
    }

    fn dpkg(&self, words: &[&str]) {
        let mut dpkg = Command::new("dpkg");
        dpkg.arg(format!("--root={}", self.folder.display()))
            .args(["--force-unsafe-io", "--force-script-chrootless"]);
        dpkg.arg("--log=/dev/null").args(words);
        read(dpkg.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")).unwrap();
    }

    /// What there is beside dpkg's own files, but for its list of diversions.
    fn look_beside_dpkg(&self) -> BTreeMap<PathBuf, String> {
        let is_shown = |path: &Path| !path.starts_with("var/lib/dpkg") || path.ends_with("diversions");
        self.look_at_content().into_iter().filter(|(path, _)| is_shown(path)).collect()
    }

    fn text_of_plugin(&self) -> String {
        fs::read_to_string(self.folder.join(self.plugin())).unwrap()
    }
}

#[test]
fn an_upgrade_of_the_distributions_packages_is_there_after_uninstalling() {
    let Some(never) = Root::of_packages("never") else { return };
    never.upgrade("2");
    let expected = never.look_beside_dpkg();
    let root = Root::of_packages("upgraded").unwrap();
    root.install(&mut Steps::all()).unwrap();
    root.upgrade("2");
    assert_eq!(root.text_of_plugin().as_bytes(), OURS);
    // Installed anew after it as well.
    root.install(&mut Steps::all()).unwrap();
    root.upgrade("3");
    root.upgrade("2");
    assert_eq!(root.text_of_plugin().as_bytes(), OURS);
    assert!(root.uninstall(&mut Steps::all()).unwrap());
    assert_eq!(root.text_of_plugin(), format!("{THEIRS}, 2"));
    assert_eq!(root.look_beside_dpkg(), expected);
}

#[test]
fn uninstalling_needs_no_libibverbs_any_more() {
    let Some(never) = Root::of_packages("never-removed") else { return };
    never.dpkg(&["--purge", PLUGINS, LIBRARY]);
    let expected = never.look_beside_dpkg();
    let root = Root::of_packages("removed").unwrap();
    root.install(&mut Steps::all()).unwrap();
    let mut points = 0;
    loop {
        root.dpkg(&["--purge", PLUGINS, LIBRARY]);
        assert_eq!(root.text_of_plugin().as_bytes(), OURS);
        if root.uninstall(&mut Steps::first(points)).is_ok() {
            break;
        }
        assert!(root.uninstall(&mut Steps::all()).is_ok());
        assert_eq!(root.look_beside_dpkg(), expected, "killed at {points}");
        root.upgrade("1");
        root.install(&mut Steps::all()).unwrap();
        points += 1;
    }
    assert_eq!(root.look_beside_dpkg(), expected);
    assert!(points > 5, "{points} points only");
}

#[test]
fn packages_that_come_back_find_their_plugin_in_its_place_after_uninstalling() {
    let Some(root) = Root::of_packages("back") else { return };
    let before = root.look_beside_dpkg();
    root.install(&mut Steps::all()).unwrap();
    root.dpkg(&["--purge", PLUGINS, LIBRARY]);
    root.upgrade("1");
    assert_eq!(root.text_of_plugin().as_bytes(), OURS);
    root.uninstall(&mut Steps::all()).unwrap();
    assert_eq!(root.look_beside_dpkg(), before);
}
