//! Installing into a folder from which somebody makes a package: no libibverbs is there that could be asked.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::Mode;

use super::site::{DISTRIBUTIONS, Site};
use super::steps::{Content, Steps, draft_beside, is_there};
use super::{Options as Installation, elf, system, tools};
use crate::workspace::root;
use crate::{inspect, package, packages, plugin};

/// What a libibverbs would tell.
#[derive(clap::Args)]
#[group(id = "stage")]
pub struct Options {
    /// Into the folder of --destdir without libibverbs, to make a package from: the plugin for this layout
    #[arg(long, value_name = "N", requires = "libdir")]
    layout: Option<u32>,
    /// With --layout: where the package has libraries, such as /usr/lib64
    #[arg(long, value_name = "DIR", requires = "layout")]
    libdir: Option<PathBuf>,
    /// With --layout: where the package has configuration
    #[arg(long, value_name = "DIR", default_value = "/etc")]
    sysconfdir: PathBuf,
}

impl Options {
    /// `None` if a libibverbs is to be asked.
    pub fn wanted(&self) -> Result<Option<Stage<'_>>> {
        let (Some(layout), Some(libraries)) = (self.layout, &self.libdir) else { return Ok(None) };
        let layout = plugin::of_number(layout)?;
        for folder in [libraries, &self.sysconfdir] {
            ensure!(
                folder.is_absolute(),
                "{} is to begin with /, as the package will have it",
                folder.display()
            );
        }
        Ok(Some(Stage { layout, libraries, configuration: &self.sysconfdir }))
    }
}

/// Where things go, seen from the folder.
pub struct Stage<'options> {
    pub(super) layout: &'static crate::layout::Layout,
    pub(super) libraries: &'options Path,
    pub(super) configuration: &'options Path,
}

impl Stage<'_> {
    /// Puts everything there. Nothing is recorded: what is not wanted any more goes with the folder.
    pub fn fill(&self, folder: &Path, prefix: Option<&Path>, options: &Installation) -> Result<ExitCode> {
        self.refuse(folder, prefix)?;
        let file = match &options.plugin {
            Some(file) => file.clone(),
            None => {
                packages::install(packages::BUILD)?;
                plugin::of_layout(self.layout).context(super::NAME_IT)?.library
            }
        };
        inspect::symbols(&file, self.layout)
            .with_context(|| format!("{} is not for layout {}", file.display(), self.layout.number))?;
        let checker = options.checker()?;
        let read = |file: &Path| fs::read(file).with_context(|| format!("cannot read {}", file.display()));
        let (plugin, program) = (read(&file)?, read(&checker)?);
        elf::refuse_another(&checker, &program, elf::machine(&plugin))?;
        for path in self.put(folder, prefix, plugin, program)? {
            println!("staged {}", path.display());
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Refuses a folder that has more to tell than this was told.
    pub(super) fn refuse(&self, folder: &Path, prefix: Option<&Path>) -> Result<()> {
        ensure!(
            folder != Path::new("/"),
            "--layout is for a folder to make a package from: --destdir names it"
        );
        if system::has_library(folder, prefix) {
            bail!(
                "{} has a libibverbs, which tells its layout and folders: leave --layout away",
                folder.display()
            );
        }
        let marks = ["etc/os-release", "usr/lib/os-release", "var/lib/dpkg/status", "var/lib/rpm"];
        if let Some(mark) = marks.iter().find(|mark| is_there(&folder.join(mark))) {
            bail!(
                "{} has {mark}: it is a system, and no folder to make a package from. Installed there, nothing could \
                 be taken back; it lacks libibverbs",
                folder.display()
            );
        }
        Ok(())
    }

    /// Says what it has put where, seen from the folder.
    pub fn put(
        &self,
        folder: &Path,
        prefix: Option<&Path>,
        plugin: Vec<u8>,
        program: Vec<u8>,
    ) -> Result<Vec<PathBuf>> {
        rustix::process::umask(Mode::from_raw_mode(0o022));
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let site = Site::beside(&folder.canonicalize()?, self.libraries);
        let path = self.libraries.join("libibverbs").join(format!("libirdma-rdmav{}.so", self.layout.pabi));
        let prefix = Path::new("/").join(prefix.unwrap_or(Path::new(DISTRIBUTIONS)));
        // It may be installed in the place of another one, or as the only one: where that is, its package knows.
        let drivers = self.configuration.join("libibverbs.d");
        let tools = tools::tools(&prefix, program, package::pages(&path, None, &drivers)?);
        let driver_file = drivers.join("irdma.driver");
        let mut files = vec![
            (path, Content::new(plugin)),
            (driver_file, Content::new(fs::read(root().join("irdma.driver"))?)),
        ];
        files.extend(tools.into_iter().map(|tool| (tool.path, tool.content)));
        let mut steps = Steps::all();
        for (path, content) in &files {
            let file = site.at(path);
            if let Some(folder) = file.parent() {
                fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
            }
            steps.replace(&file, &draft_beside(&file), content)?;
        }
        Ok(files.into_iter().map(|(path, _)| path).collect())
    }
}
