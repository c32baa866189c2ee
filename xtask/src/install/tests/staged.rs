//! A folder to make a package from.

use super::super::stage::Stage;
use super::*;
use crate::plugin;

#[test]
fn a_folder_without_libibverbs_gets_the_files_of_a_package_and_nothing_else() {
    let folder = folder_for("staged").join("not there yet");
    let stage = Stage {
        layout: plugin::of_number(62).unwrap(),
        libraries: Path::new("/usr/lib64"),
        configuration: Path::new("/etc"),
    };
    assert!(
        format!("{:#}", System::find(folder.parent().unwrap(), None).unwrap_err())
            .contains("--layout and --libdir")
    );
    stage.refuse(&folder, None).unwrap();
    let put = || stage.put(&folder, None, OURS.into(), b"our program".into()).unwrap();
    let paths = put();
    let root = Root { folder: folder.clone(), libraries: "" };
    let found = root.look_at_content();
    let file = |path: &str| &*found[Path::new(path)];
    assert_eq!(file("usr/lib64/libibverbs/libirdma-rdmav59.so"), "file 100644 our plugin");
    assert_eq!(file("etc/libibverbs.d/irdma.driver"), "file 100644 driver irdma\n");
    assert_eq!(file("usr/bin/irdma-check"), "file 100755 our program");
    assert!(file("usr/share/man/man1/irdma-check.1").contains("IRDMA-CHECK"));
    let page = file("usr/share/man/man7/irdma-provider.7");
    assert!(
        page.contains("/usr/lib64/libibverbs/libirdma-rdmav59.so") && !page.contains(".distrib"),
        "{page}"
    );
    assert!(found.values().filter(|what| what.starts_with("folder")).all(|what| what == "folder 40755"));
    let files = found.values().filter(|what| what.starts_with("file")).count();
    assert_eq!((paths.len(), files), (5, 5));
    // Again, and it is none that could be taken back.
    put();
    assert_eq!(root.look_at_content(), found);
    assert!(!uninstall(&folder, &mut Steps::all()).unwrap());
    assert_eq!(root.look_at_content(), found);
    fs::remove_dir_all(folder.parent().unwrap()).unwrap();
}

#[test]
fn a_folder_that_is_a_system_is_refused() {
    let stage = Stage {
        layout: plugin::of_number(34).unwrap(),
        libraries: Path::new("/usr/lib64"),
        configuration: Path::new("/etc"),
    };
    let reason = |root: &Root| stage.refuse(&root.folder, None).unwrap_err().to_string();
    let root = Root::new("staged-system", SYSTEMS[0]);
    assert!(reason(&root).contains("has a libibverbs"), "{}", reason(&root));
    fs::remove_dir_all(root.folder.join("usr")).unwrap();
    assert!(reason(&root).contains("it is a system"), "{}", reason(&root));
    assert!(stage.refuse(Path::new("/"), None).unwrap_err().to_string().contains("--destdir"));
}
