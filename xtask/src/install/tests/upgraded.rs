//! The distribution's package is upgraded between a kill and the second run.

use std::fs;
use std::path::PathBuf;

use super::super::steps::Steps;
use super::{OURS, Root, SYSTEMS, is_killed};

const NEWER_THEIRS: &str = "the distribution's newer plugin";

impl Root {
    /// The distribution's plugin under its other name.
    fn other_name(&self) -> PathBuf {
        self.plugin().with_extension("so.distrib")
    }

    /// As dpkg does it: under the name that the list of diversions has for it, as a new file.
    fn unpack_newer(&self) {
        let diversions = fs::read_to_string(self.folder.join("var/lib/dpkg/diversions")).unwrap();
        let is_diverted = diversions.contains(&*self.plugin().to_string_lossy());
        let unpacked = if is_diverted { self.other_name() } else { self.plugin() };
        let _ = fs::remove_file(self.folder.join(&unpacked));
        self.put(&unpacked, NEWER_THEIRS);
    }

    /// The distribution's plugin is in its place, in the version after the upgrade.
    fn is_upgraded(&self, point: &str) {
        assert_eq!(fs::read_to_string(self.folder.join(self.plugin())).unwrap(), NEWER_THEIRS, "{point}");
        assert!(!self.folder.join(self.other_name()).exists(), "{point}");
        assert!(!self.look().keys().any(|path| path.to_string_lossy().contains("irdma-provider")), "{point}");
    }
}

#[test]
fn an_upgrade_after_a_kill_is_kept_as_well() {
    let mut points = 0;
    for undoes in [false, true] {
        for (point, repairs) in (0..).flat_map(|point| [(point, false), (point, true)]) {
            let root = Root::new("upgrade-killed", SYSTEMS[0]);
            let result = if undoes {
                root.install(&mut Steps::all()).unwrap();
                root.uninstall(&mut Steps::first(point)).map(|_| ())
            } else {
                root.install(&mut Steps::first(point))
            };
            if !is_killed(&result) {
                result.unwrap();
                break;
            }
            root.unpack_newer();
            let name = format!("undoing {undoes}, killed at {point}, repaired {repairs}");
            if repairs {
                root.install(&mut Steps::all()).unwrap_or_else(|error| panic!("{name}: {error:#}"));
                assert_eq!(fs::read(root.folder.join(root.plugin())).unwrap(), OURS, "{name}");
            }
            root.uninstall(&mut Steps::all()).unwrap_or_else(|error| panic!("{name}: {error:#}"));
            root.is_upgraded(&name);
            points += 1;
        }
    }
    assert!(points >= 20, "{points} points only");
}
