//! Systems whose folders are links, as they are for the system's own programs: `/` in them is its root.

use super::*;

/// A system without dpkg in which `link` is a link to `target`, where what was there has gone.
fn with_link(name: &str, link: &str, target: &str) -> Root {
    let root = Root::new(name, SYSTEMS[2]);
    let behind = match target.strip_prefix('/') {
        Some(target) => root.folder.join(target),
        None => root.folder.join(link).with_file_name(target),
    };
    fs::create_dir_all(behind.parent().unwrap()).unwrap();
    fs::rename(root.folder.join(link), behind).unwrap();
    symlink(target, root.folder.join(link)).unwrap();
    root
}

#[test]
fn an_installation_behind_links_is_undone() {
    for (number, (link, target)) in [
        ("usr/lib64", "/usr/lib"),
        ("usr/lib64", "lib"),
        // As where /usr itself is read-only.
        ("usr/local", "/var/usrlocal"),
        ("etc/libibverbs.d", "/etc/rdma/libibverbs.d"),
        ("etc", "/private/etc"),
    ]
    .into_iter()
    .enumerate()
    {
        let root = with_link(&format!("link-{number}"), link, target);
        let before = root.look();
        root.install(&mut Steps::all()).unwrap();
        root.is_usable(SYSTEMS[2]);
        let place = root.system().at(Path::new("/usr/lib64/irdma-provider/libirdma-rdmav34.so"));
        assert_eq!(fs::read(place).unwrap(), OURS, "{link} -> {target}");
        let program = root.system().at(Path::new("/usr/local/bin/irdma-check"));
        assert_eq!(fs::read(program).unwrap(), b"our program", "{link} -> {target}");
        assert!(root.uninstall(&mut Steps::all()).unwrap());
        assert_eq!(root.look(), before, "{link} -> {target}");
    }
}

#[test]
fn a_folder_that_a_link_only_promises_is_made_and_taken_away() {
    let root = Root::new("promise", SYSTEMS[2]);
    fs::remove_dir_all(root.folder.join("usr/local")).unwrap();
    fs::create_dir(root.folder.join("var")).unwrap();
    symlink("/var/usrlocal", root.folder.join("usr/local")).unwrap();
    let before = root.look();
    root.install(&mut Steps::all()).unwrap();
    assert!(root.folder.join("var/usrlocal/bin/irdma-check").exists());
    root.uninstall(&mut Steps::all()).unwrap();
    assert_eq!(root.look(), before);
}

#[test]
fn a_driver_file_that_is_a_link_is_refused() {
    let root = Root::new("driver-link", SYSTEMS[2]);
    let file = root.folder.join("etc/libibverbs.d/irdma.driver");
    fs::rename(&file, root.folder.join("etc/irdma")).unwrap();
    symlink("../irdma", &file).unwrap();
    let before = root.look();
    let reason = format!("{:#}", root.install(&mut Steps::all()).unwrap_err());
    assert!(reason.contains("not a plain file"), "{reason}");
    assert_eq!(root.look(), before);
}
