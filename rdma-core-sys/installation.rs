// Where an unpacked distribution, or a folder that rdma-core was built or installed in,
// has libibverbs and its headers; shared by the build script and the commands.

/// A libibverbs to build against.
pub struct Installation {
    /// Directory of `libibverbs.so`.
    pub libraries: std::path::PathBuf,
    /// Directory above `infiniband/verbs.h`.
    pub headers: std::path::PathBuf,
    /// Its pkg-config file.
    pub description: std::path::PathBuf,
    /// `Version:` of that, such as 1.14.44.0.
    pub version: String,
}

impl Installation {
    /// The one below `root`: a system's root, a prefix, or the folder of a build. `triplet` is
    /// Debian's name for the architecture in paths.
    pub fn below(root: &std::path::Path, triplet: &str) -> Result<Installation, String> {
        let multiarch = format!("lib/{triplet}");
        let folders = [root.join("usr"), root.join("usr/local"), root.to_owned()].into_iter();
        let mut places = folders.flat_map(|folder| {
            [multiarch.as_str(), "lib64", "lib"].map(|libraries| (folder.join("include"), folder.join(libraries)))
        });
        let (headers, libraries) =
            places.find(|(_, libraries)| libraries.join("libibverbs.so").exists()).ok_or_else(|| {
                format!(
                    "{0} has no libibverbs.so in usr/lib/{triplet}, usr/lib64, usr/lib or the same of a prefix: it \
                     must be a folder in which a distribution, or an installation of rdma-core with its headers, \
                     is unpacked",
                    root.display()
                )
            })?;
        if !headers.join("infiniband/verbs.h").exists() {
            return Err(format!(
                "{} has libibverbs but not infiniband/verbs.h: its development package is missing",
                headers.display()
            ));
        }
        let description = libraries.join("pkgconfig/libibverbs.pc");
        let text = std::fs::read_to_string(&description)
            .map_err(|error| format!("{}: {error}", description.display()))?;
        let version = text
            .lines()
            .find_map(|line| line.strip_prefix("Version:"))
            .ok_or_else(|| format!("{}: no version in it", description.display()))?
            .trim()
            .to_owned();
        Ok(Installation { libraries, headers, description, version })
    }
}

/// The layout of the release that a libibverbs version belongs to: 1.14.44.0 is rdma-core 44.
pub fn layout_of_version(version: &str) -> Result<&'static Layout, String> {
    let release = version.split('.').nth(2).and_then(|field| field.parse::<u32>().ok());
    LAYOUTS
        .iter()
        .find(|layout| release.is_some_and(|release| (layout.first..=layout.last).contains(&release)))
        .ok_or_else(|| {
            format!(
                "libibverbs {version} is of an rdma-core release that is not supported; supported are {} to {}",
                LAYOUTS[0].first,
                LAYOUTS[LAYOUTS.len() - 1].last
            )
        })
}
