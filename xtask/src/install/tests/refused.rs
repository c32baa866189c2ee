//! What stands in the way, is not known, or was changed by somebody.

use super::*;

#[test]
fn what_is_in_the_way_is_refused_and_left_alone() {
    let with_dpkg: &[Obstacle] = &[
        (|root| root.put(Path::new("etc/libibverbs.d/other"), "driver /opt/libirdma\n"), "remove one"),
        (|root| root.put(&root.plugin().with_extension("so.distrib"), "x"), "in the way"),
        (|root| root.divert("somebody"), "by the package somebody"),
        (|root| root.divert(":"), "by somebody"),
        (|root| root.put(Path::new("etc/libibverbs.d/irdma.driver"), "# driver irdma\n"), "turned it off"),
        (|root| root.put(Path::new("etc/libibverbs.d/irdma.driver"), "driver /x/irdma\n"), "by its path"),
        (|root| root.put(&root.plugin(), "our plugin"), "already"),
        (|root| root.put(Path::new("usr/local/bin/irdma-check"), "another's"), "by other means"),
        (|root| root.put(Path::new("var/lib/dpkg/diversions"), "/a\n/b\n"), "dpkg-divert"),
        (
            |root| {
                let plugin = root.folder.join(root.plugin());
                fs::remove_file(&plugin).unwrap();
                symlink("/dev/null", plugin).unwrap();
            },
            "not a plain file",
        ),
    ];
    let without: &[Obstacle] = &[
        (|root| root.put(Path::new("etc/libibverbs.d/other"), "driver /opt/libirdma\n"), "remove one"),
        // As our package for rpm does.
        (
            |root| root.put(Path::new("etc/libibverbs.d/irdma.driver"), "driver irdma\ndriver /x/libirdma\n"),
            "by its path",
        ),
    ];
    let of =
        |system, obstacles: &'static [Obstacle]| obstacles.iter().map(move |obstacle| (system, obstacle));
    let all = of(SYSTEMS[0], with_dpkg).chain(of(SYSTEMS[2], without));
    for (number, (system, (obstacle, word))) in all.enumerate() {
        let root = Root::new(&format!("refused-{number}"), system);
        obstacle(&root);
        let before = root.look();
        let reason = format!("{:#}", root.install(&mut Steps::all()).unwrap_err());
        assert!(reason.contains(word), "{reason}");
        assert_eq!(root.look(), before, "{reason}");
        assert!(!root.uninstall(&mut Steps::all()).unwrap());
        assert_eq!(root.look(), before, "{reason}");
    }
}

impl Root {
    /// A diversion of the plugin: `:` is dpkg's mark of an administrator's.
    fn divert(&self, owner: &str) {
        let plugin = self.plugin();
        let text = format!("/{0}\n/{0}.elsewhere\n{owner}\n", plugin.display());
        self.put(Path::new("var/lib/dpkg/diversions"), &text);
    }
}

#[test]
fn a_libibverbs_that_is_not_known_is_refused() {
    let root = Root::new("release", SYSTEMS[0]);
    let reason = |version, pabi| {
        root.put_library(version, pabi);
        format!("{:#}", System::find(&root.folder, None).unwrap_err())
    };
    assert!(reason("1.14.36.0", 34).contains("not supported"));
    assert!(reason("1.14.99.0", 99).contains("not supported"));
    assert!(reason("1.14.44.0", 57).contains("looks for plugins of layout 57"));
    assert!(reason("1.14", 34).contains("does not name its version"));
    fs::remove_file(root.folder.join(root.libraries()).join("libibverbs.so.1")).unwrap();
    let missing = format!("{:#}", System::find(&root.folder, None).unwrap_err());
    assert!(missing.contains("no libibverbs.so.1"), "{missing}");
}

#[test]
fn what_somebody_changed_since_is_not_lost() {
    // Of the driver file, their lines stay and ours goes.
    let root = Root::new("edited", SYSTEMS[2]);
    root.install(&mut Steps::all()).unwrap();
    let file = root.folder.join("etc/libibverbs.d/irdma.driver");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("# theirs\n{text}")).unwrap();
    root.uninstall(&mut Steps::all()).unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), "# theirs\n# comment\ndriver irdma\n");

    // A plugin of a third kind is left, and so is the distribution's.
    let root = Root::new("third", SYSTEMS[0]);
    root.install(&mut Steps::all()).unwrap();
    root.put(&root.plugin(), "a third plugin");
    let before = root.look_at_content();
    for reason in
        [root.install(&mut Steps::all()).unwrap_err(), root.uninstall(&mut Steps::all()).unwrap_err()]
    {
        assert!(format!("{reason:#}").contains("changed by somebody"), "{reason:#}");
    }
    let kept = root.plugin().with_extension("so.distrib");
    assert_eq!(root.look_at_content().get(&root.plugin()), before.get(&root.plugin()));
    assert_eq!(root.look_at_content().get(&kept), before.get(&kept));
}
