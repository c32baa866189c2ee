//! Machines on which it cannot work, and files that cannot be installed.

use std::fs::File;
use std::io::Write;
use std::process::Command;

use super::*;
use crate::workspace::read;

/// A small file system, mounted; unmounted with this value.
struct Disk {
    folder: PathBuf,
}

impl Disk {
    /// `None` where that takes rights that this process has not.
    fn new(name: &str) -> Option<Disk> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("not tested: mounting takes root");
            return None;
        }
        let folder = folder_for(name);
        let mut mount = Command::new("mount");
        read(mount.args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"]).arg(&folder)).unwrap();
        Some(Disk { folder })
    }

    /// Leaves that many pages free.
    fn fill_up_to(&self, pages: u64) {
        let path = self.folder.join("filler");
        let mut file = File::options().create(true).append(true).open(path).unwrap();
        while file.write_all(&[0; 4096]).is_ok() {}
        let size = file.metadata().unwrap().len();
        file.set_len(size.saturating_sub(4096 * pages)).unwrap();
    }

    fn empty(&self) {
        fs::remove_file(self.folder.join("filler")).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.folder).status();
        let _ = fs::remove_dir(&self.folder);
    }
}

impl Root {
    /// For messages: these files are too long to be shown.
    fn paths(&self) -> Vec<PathBuf> {
        self.look().into_keys().collect()
    }
}

/// As it does for a plugin and a program of some pages.
fn install_large(root: &Root) -> Result<()> {
    let tools = tools::tools(&tools::folder(None), vec![1; 20_000], Vec::new());
    let parcel = Parcel { plugin: &vec![2; 30_000], tools: &tools };
    changes::install(&root.system(), &parcel, &mut Steps::all(), |_| Ok(())).map(|_| ())
}

#[test]
fn a_disk_that_gets_full_leaves_nothing_half_done() {
    for has in [SYSTEMS[0], SYSTEMS[1], SYSTEMS[2], SYSTEMS[4]] {
        let Some(disk) = Disk::new("full") else { return };
        let root = Root::in_folder(disk.folder.join("root"), has);
        let before = root.look();
        let mut pages = 0;
        loop {
            disk.fill_up_to(pages);
            let result = install_large(&root);
            disk.empty();
            let Err(error) = result else { break };
            assert!(
                root.look() == before,
                "{has:?}, {pages} pages free: {error:#}; left is {:?}",
                root.paths()
            );
            pages += 1;
        }
        assert!(pages > 10, "it took {pages} pages only");
        // Where there is no room for it either, undoing loses nothing.
        disk.fill_up_to(0);
        let whole = root.look_at_content();
        if root.uninstall(&mut Steps::all()).is_err() {
            assert!(root.look_at_content() == whole, "{has:?}: {:?}", root.paths());
        }
        disk.empty();
        root.uninstall(&mut Steps::all()).unwrap();
        assert!(root.look() == before, "{has:?}: {:?}", root.paths());
    }
}

#[test]
fn a_disk_that_is_read_only_is_refused_in_both_directions() {
    let Some(disk) = Disk::new("read-only") else { return };
    let remount = |how: &str| {
        read(Command::new("mount").arg("-o").arg(format!("remount,{how}")).arg(&disk.folder)).unwrap();
    };
    let root = Root::in_folder(disk.folder.join("root"), SYSTEMS[0]);
    let paths = tools::paths(&tools::folder(None));
    changes::refuse(&root.system(), &paths).unwrap();
    remount("ro");
    let reason = changes::refuse(&root.system(), &paths).unwrap_err().to_string();
    assert!(reason.contains("read-only"), "{reason}");
    remount("rw");
    root.install(&mut Steps::all()).unwrap();
    remount("ro");
    let reason = root.uninstall(&mut Steps::all()).unwrap_err().to_string();
    assert!(reason.contains("read-only"), "{reason}");
    remount("rw");
    assert!(root.uninstall(&mut Steps::all()).unwrap());
}

/// Runs that as somebody with no rights; `None` where this process is itself such a one.
fn as_nobody<Value: Send>(run: impl FnOnce() -> Value + Send) -> Option<Value> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not tested: only root can become somebody else");
        return None;
    }
    let nobody = rustix::process::Uid::from_raw(65534);
    let run = || {
        // Of this thread alone, which ends then.
        rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
        run()
    };
    Some(std::thread::scope(|scope| scope.spawn(run).join().unwrap()))
}

#[test]
fn without_rights_both_say_that_it_takes_root() {
    for has in [SYSTEMS[0], SYSTEMS[2]] {
        let root = Root::new("nobody", has);
        // Everybody may read what a distribution installs.
        read(Command::new("chmod").args(["-R", "go+rX"]).arg(&root.folder)).unwrap();
        let before = root.look();
        let paths = tools::paths(&tools::folder(None));
        let refused = as_nobody(|| changes::refuse(&root.system(), &paths).unwrap_err().to_string());
        let Some(reason) = refused else { return };
        assert!(reason.contains("is not writable: this needs root"), "{reason}");
        root.install(&mut Steps::all()).unwrap();
        let whole = root.look();
        let reason = as_nobody(|| root.uninstall(&mut Steps::all()).unwrap_err().to_string()).unwrap();
        assert!(reason.contains("is not writable: this needs root"), "{reason}");
        assert_eq!(root.look(), whole);
        root.uninstall(&mut Steps::all()).unwrap();
        assert_eq!(root.look(), before);
    }
}

#[test]
fn a_broken_list_of_diversions_stops_both_before_they_begin() {
    let root = Root::new("broken-list", SYSTEMS[0]);
    let list = root.folder.join("var/lib/dpkg/diversions");
    let before = root.look();
    root.install(&mut Steps::all()).unwrap();
    let (whole, text) = (root.look_at_content(), fs::read(&list).unwrap());
    fs::write(&list, "/a\n/b\n").unwrap();
    for result in [root.uninstall(&mut Steps::all()).map(|_| ()), root.install_this(NEWER, &mut Steps::all())]
    {
        let reason = format!("{:#}", result.unwrap_err());
        assert!(reason.contains("dpkg-divert"), "{reason}");
    }
    fs::write(&list, text).unwrap();
    root.install(&mut Steps::all()).unwrap();
    assert_eq!(root.look_at_content(), whole);
    root.uninstall(&mut Steps::all()).unwrap();
    assert_eq!(root.look(), before);
}

#[test]
fn what_is_no_plugin_for_this_system_is_refused() {
    let root = Root::new("no-plugin", SYSTEMS[0]);
    let before = root.look();
    let folder = folder_for("no-plugin-files");
    let file = |name: &str, bytes: &[u8]| {
        fs::write(folder.join(name), bytes).unwrap();
        folder.join(name)
    };
    let checker = std::env::current_exe().unwrap();
    let arm64 = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\xb7\0 and so on";
    let cut = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0 and so on";
    for (plugin, word) in [
        (folder.join("missing"), "No such file"),
        (folder.clone(), "Is a directory"),
        (file("empty", b""), "no ELF file"),
        (file("text", b"#!/bin/sh\n# and more than twenty bytes"), "no ELF file"),
        (file("arm64", arm64), "is for arm64, and this libibverbs for x86-64"),
        (file("cut", cut), "not for this libibverbs"),
        // A program, which registers no driver.
        (Path::new("/bin/true").to_owned(), "not for this libibverbs"),
    ] {
        let result = super::super::put(&root.system(), &plugin, &checker, &tools::folder(None));
        let reason = format!("{:#}", result.unwrap_err());
        assert!(reason.contains(word), "{}: {reason}", plugin.display());
        assert_eq!(root.look(), before, "{reason}");
    }
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_second_installation_at_the_same_time_is_refused() {
    let root = Root::new("twice", SYSTEMS[0]);
    let first = super::super::lock(&root.system()).unwrap();
    let reason = format!("{:#}", super::super::lock(&root.system()).unwrap_err());
    assert!(reason.contains("under way"), "{reason}");
    drop(first);
    super::super::lock(&root.system()).unwrap();
}
