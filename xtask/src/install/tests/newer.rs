//! Newer versions: of ours, of the distribution's plugin, of libibverbs.

use super::*;

#[test]
fn a_newer_plugin_takes_the_place_of_an_older_one() {
    for has in SYSTEMS {
        let root = Root::new("newer", has);
        let before = root.look();
        let mut points = 0;
        loop {
            root.install(&mut Steps::all()).unwrap();
            let result = root.install_this(NEWER, &mut Steps::first(points));
            if !is_killed(&result) {
                result.unwrap();
                break;
            }
            // Back to the older one, then undone.
            root.install(&mut Steps::all()).unwrap();
            assert!(is_killed(&root.install_this(NEWER, &mut Steps::first(points))));
            root.uninstall(&mut Steps::all()).unwrap();
            assert_eq!(root.look(), before, "{has:?}, killed at {points}");
            points += 1;
        }
        root.uninstall(&mut Steps::all()).unwrap();
        assert_eq!(root.look(), before, "{has:?}");
    }
}

#[test]
fn an_installation_of_a_version_with_other_files_is_renewed() {
    for has in SYSTEMS {
        let root = Root::new("files", has);
        let before = root.look();
        root.install(&mut Steps::all()).unwrap();
        let whole = root.look_at_content();
        root.uninstall(&mut Steps::all()).unwrap();
        // As versions before the first that brought irdma-check.
        let alone = Parcel { plugin: OURS, tools: &[] };
        let install_alone =
            || changes::install(&root.system(), &alone, &mut Steps::all(), |_| Ok(())).unwrap();
        let mut points = 0;
        loop {
            install_alone();
            assert!(!root.folder.join("usr/local/bin/irdma-check").exists());
            let result = root.install(&mut Steps::first(points));
            root.is_usable(has);
            if !is_killed(&result) {
                result.unwrap();
                break;
            }
            root.install(&mut Steps::all()).unwrap();
            assert_eq!(root.look_at_content(), whole, "{has:?}, killed at {points}");
            root.uninstall(&mut Steps::all()).unwrap();
            assert_eq!(root.look(), before, "{has:?}, killed at {points}");
            points += 1;
        }
        assert_eq!(root.look_at_content(), whole, "{has:?}");
        // And back to such a version.
        install_alone();
        root.uninstall(&mut Steps::all()).unwrap();
        assert_eq!(root.look(), before, "{has:?}");
    }
}

#[test]
fn an_upgrade_of_the_distributions_plugin_is_kept() {
    let root = Root::new("upgrade", SYSTEMS[0]);
    root.install(&mut Steps::all()).unwrap();
    // As dpkg does it for a diverted file.
    let kept = root.plugin().with_extension("so.distrib");
    root.put(&kept, "the distribution's newer plugin");
    root.install(&mut Steps::all()).unwrap();
    assert_eq!(fs::read(root.folder.join(root.plugin())).unwrap(), OURS);
    root.uninstall(&mut Steps::all()).unwrap();
    let text = fs::read_to_string(root.folder.join(root.plugin())).unwrap();
    assert_eq!(text, "the distribution's newer plugin");
    assert!(!root.folder.join(kept).exists());
}

#[test]
fn another_release_of_libibverbs_gets_the_installation_moved() {
    for has in SYSTEMS {
        let root = Root::new("moved", has);
        let before = root.look();
        root.install(&mut Steps::all()).unwrap();
        root.put_library("1.15.59.0", 59);
        root.install(&mut Steps::all()).unwrap();
        let bytes = |name: &str| fs::read(root.folder.join(root.libraries()).join(name)).ok();
        let folder = if has.dpkg { "libibverbs" } else { "irdma-provider" };
        assert_eq!(bytes(&format!("{folder}/libirdma-rdmav59.so")).as_deref(), Some(OURS), "{has:?}");
        let theirs = has.plugin.then_some(THEIRS.as_bytes());
        assert_eq!(bytes("libibverbs/libirdma-rdmav34.so").as_deref(), theirs, "{has:?}");
        root.uninstall(&mut Steps::all()).unwrap();
        fs::remove_file(root.folder.join(root.libraries()).join("libibverbs.so.1.15.59.0")).unwrap();
        let after = root.look();
        let left: Vec<_> = before.keys().filter(|path| !after.contains_key(*path)).collect();
        assert!(left.is_empty() && after.len() == before.len(), "{has:?}: {left:?}");
    }
}
