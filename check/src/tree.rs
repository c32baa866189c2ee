//! For tests: a made-up system in a folder.

use std::ffi::CString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use crate::files::Root;

/// A folder that goes with this value.
pub struct Tree(PathBuf);

impl Tree {
    /// An empty one; the name is the test's own.
    pub fn new(name: &str) -> Tree {
        let folder = std::env::temp_dir().join(format!("irdma-check-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        Tree(folder)
    }

    /// A system with one device of the second generation that has everything.
    pub fn with_device(name: &str) -> Tree {
        let tree = Tree::new(name);
        tree.file("proc/sys/kernel/osrelease", "6.12.0\n");
        tree.file("sys/module/irdma/srcversion", "ABC\n");
        let function = "sys/class/infiniband/irdma0/device";
        for folder in [function, "sys/bus/pci/devices/0000:3b:00.0"] {
            tree.file(&format!("{folder}/vendor"), "0x8086\n");
            tree.file(&format!("{folder}/device"), "0x1592\n");
            tree.file(&format!("{folder}/class"), "0x020000\n");
            tree.file(&format!("{folder}/uevent"), "DRIVER=ice\nPCI_SLOT_NAME=0000:3b:00.0\n");
        }
        tree.file(&format!("{function}/net/ens1/address"), "");
        let device = "sys/class/infiniband/irdma0";
        tree.file(&format!("{device}/node_type"), "1: CA\n");
        tree.file(&format!("{device}/fw_ver"), "1.71\n");
        tree.file(&format!("{device}/ports/1/state"), "4: ACTIVE\n");
        tree.file(&format!("{device}/ports/1/link_layer"), "Ethernet\n");
        tree.file(&format!("{device}/ports/1/rate"), "100 Gb/sec (4X EDR)\n");
        for (index, gid) in
            ["fe80:0000:0000:0000:5054:00ff:fe01:0001", "0000:0000:0000:0000:0000:ffff:0a00:0001"]
                .iter()
                .enumerate()
        {
            tree.file(&format!("{device}/ports/1/gids/{index}"), &format!("{gid}\n"));
            tree.file(&format!("{device}/ports/1/gid_attrs/types/{index}"), "RoCE v2\n");
            tree.file(&format!("{device}/ports/1/gid_attrs/ndevs/{index}"), "ens1\n");
        }
        tree.file(&format!("{device}/ports/1/gids/2"), "0000:0000:0000:0000:0000:0000:0000:0000\n");
        tree.file("sys/class/net/ens1/operstate", "up\n");
        tree.file("sys/class/net/ens1/mtu", "1500\n");
        tree.file("sys/class/infiniband_verbs/uverbs0/ibdev", "irdma0\n");
        tree.file("sys/class/infiniband_verbs/uverbs0/abi_version", "5\n");
        tree.file("dev/infiniband/uverbs0", "");
        tree.bytes(
            "usr/lib64/libibverbs.so.1.14.44.0",
            b"IBVERBS_PRIVATE_34\0/etc/libibverbs.d\0/usr/lib64/libibverbs/lib%s-rdmav34.so\0",
        );
        tree.link("usr/lib64/libibverbs.so.1", "libibverbs.so.1.14.44.0");
        tree.file("etc/libibverbs.d/irdma.driver", "driver irdma\n");
        tree.file("etc/libibverbs.d/mlx5.driver", "driver mlx5\n");
        tree.bytes("usr/lib64/libibverbs/libirdma-rdmav34.so", b"\0IBVERBS_PRIVATE_34\0");
        tree
    }

    /// As the program sees it.
    pub fn root(&self) -> Root {
        Root::new(self.0.clone())
    }

    /// A file of text.
    pub fn file(&self, path: &str, text: &str) {
        self.bytes(path, text.as_bytes());
    }

    /// A file of bytes.
    pub fn bytes(&self, path: &str, bytes: &[u8]) {
        let file = self.0.join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, bytes).unwrap();
    }

    /// A symbolic link.
    pub fn link(&self, path: &str, target: &str) {
        symlink(target, self.0.join(path)).unwrap();
    }

    /// A named pipe, on which whoever opens it waits.
    pub fn pipe(&self, path: &str) {
        let path = CString::new(self.0.join(path).to_str().unwrap()).unwrap();
        // SAFETY: a terminated string.
        assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
    }

    /// Takes a file or a folder away.
    pub fn remove(&self, path: &str) {
        let path = self.0.join(path);
        if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
