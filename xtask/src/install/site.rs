//! A system that is installed on, as far as the undoing needs to know it: its libibverbs may be gone by then.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::fs::{Access, AtFlags, CWD};
use rustix::io::Errno;

use crate::layout::triplet;

/// The root of a system, and the folder in it where an installation keeps what is its own.
#[derive(Clone, Debug)]
pub struct Site {
    root: PathBuf,
    /// Seen from the root.
    pub own: PathBuf,
}

/// The prefix of what distributions install.
pub const DISTRIBUTIONS: &str = "/usr";

/// More than any path has that leads somewhere.
const MOST_LINKS: usize = 40;

impl Site {
    /// Every place below `prefix` where an installation may be, on the system whose root is `root`.
    pub fn all(root: &Path, prefix: Option<&Path>) -> Result<Vec<Site>> {
        let root = root.canonicalize().with_context(|| format!("no folder {}", root.display()))?;
        let sites = libraries(prefix).into_iter().map(|folder| Site::beside(&root, &folder));
        let mut sites: Vec<Site> = sites.collect();
        // One of them may be a link to another.
        let mut seen = Vec::new();
        sites.retain(|site| {
            let own = site.at(&site.own);
            let is_new = !seen.contains(&own);
            seen.push(own);
            is_new
        });
        Ok(sites)
    }

    /// With libraries in that folder, seen from the root.
    pub fn beside(root: &Path, libraries: &Path) -> Site {
        Site { root: root.to_owned(), own: libraries.join("irdma-provider") }
    }

    /// What has that path in the system, as this process reaches it: links in it lead to where they do for
    /// the system's programs. Its last part may itself be a link.
    pub fn at(&self, path: &Path) -> PathBuf {
        match (path.parent(), path.file_name()) {
            (Some(folder), Some(name)) => self.behind(folder).join(name),
            _ => self.behind(path),
        }
    }

    /// As [`Site::at`], with the last part followed too if it is a link.
    pub fn behind(&self, path: &Path) -> PathBuf {
        let mut found = self.root.clone();
        let mut left = parts(path);
        let mut links = 0;
        while let Some(part) = left.pop_front() {
            if part == ".." {
                if found != self.root {
                    found.pop();
                }
                continue;
            }
            let next = found.join(&part);
            match fs::read_link(&next) {
                Ok(target) if links < MOST_LINKS => {
                    links += 1;
                    if target.is_absolute() {
                        found.clone_from(&self.root);
                    }
                    for part in parts(&target).into_iter().rev() {
                        left.push_front(part);
                    }
                }
                _ => found = next,
            }
        }
        found
    }

    /// Whether it is the machine itself.
    pub fn is_machine(&self) -> bool {
        self.root == Path::new("/")
    }

    /// Its root.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Refuses where one of these paths could not be made or removed.
    pub fn refuse_unwritable<'path>(&self, paths: impl IntoIterator<Item = &'path Path>) -> Result<()> {
        for path in paths {
            let path = self.at(path);
            let folder = path.ancestors().skip(1).find(|folder| folder.is_dir()).unwrap_or(&self.root);
            match rustix::fs::accessat(CWD, folder, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS) {
                Ok(()) => {}
                Err(Errno::ROFS) => bail!("{} is on a file system that is read-only", folder.display()),
                Err(Errno::ACCESS) => bail!("{} is not writable: this needs root", folder.display()),
                Err(error) => bail!("{} is not writable: {error}", folder.display()),
            }
        }
        Ok(())
    }
}

/// Where libraries are below a prefix: of Debian and its relatives, of Fedora, RHEL and SUSE, and of others.
pub fn libraries(prefix: Option<&Path>) -> [PathBuf; 3] {
    let prefix = Path::new("/").join(prefix.unwrap_or(Path::new(DISTRIBUTIONS)));
    [prefix.join("lib").join(triplet()), prefix.join("lib64"), prefix.join("lib")]
}

fn parts(path: &Path) -> VecDeque<OsString> {
    let parts = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    });
    parts.collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_are_followed_as_the_systems_programs_do() {
        let folder = std::env::temp_dir().join(format!("irdma-site-{}", std::process::id()));
        fs::create_dir_all(folder.join("usr/lib")).unwrap();
        symlink("/usr/lib", folder.join("lib64")).unwrap();
        symlink("lib", folder.join("usr/lib64")).unwrap();
        symlink("../../../../etc/passwd", folder.join("usr/out")).unwrap();
        symlink("round", folder.join("round")).unwrap();
        let site = Site::beside(&folder.canonicalize().unwrap(), Path::new("/lib64"));
        let root = site.root().to_owned();
        assert_eq!(site.at(Path::new("/lib64/a/b")), root.join("usr/lib/a/b"));
        assert_eq!(site.at(Path::new("/usr/lib64/a")), root.join("usr/lib/a"));
        assert_eq!(site.at(Path::new("/usr/lib64")), root.join("usr/lib64"));
        assert_eq!(site.behind(Path::new("/usr/lib64")), root.join("usr/lib"));
        // Never out of the root.
        assert_eq!(site.behind(Path::new("/usr/out")), root.join("etc/passwd"));
        assert_eq!(site.behind(Path::new("/round")), root.join("round"));
        assert_eq!(Site::all(&root, None).unwrap().len(), 2);
        fs::remove_dir_all(&folder).unwrap();
    }
}
