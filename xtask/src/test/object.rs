//! The built plugin: symbols and data path, for each layout that can be built here.

use anyhow::ensure;

use super::session::{Session, Verdict};
use crate::{fences, inspect, plugin, suites};

/// Of the machine's layout, and of the one of the newest suite.
pub fn check(session: &mut Session) {
    session.check("plugin", "symbols", |_| {
        let built = plugin::build(None)?;
        inspect::symbols(&built.library, built.layout).map(|()| Verdict::Passed)
    });
    session.check("plugin", "data path", |_| {
        inspect::data_path(&plugin::build(None)?.unstripped).map(|()| Verdict::Passed)
    });
    if cfg!(target_arch = "x86_64") {
        session.check("plugin", "at most 300 KiB", |_| {
            let bytes = plugin::build(None)?.library.metadata()?.len();
            ensure!(bytes <= 300 << 10, "{bytes} bytes: see docs/performance.md");
            Ok(Verdict::Passed)
        });
        session.check("plugin", "fences of pushes", |_| {
            fences::around_pushes(&plugin::build(None)?.unstripped).map(|()| Verdict::Passed)
        });
    }
    session.check("plugin", "layout 65", |_| {
        let root = match suites::development_root("forky") {
            Ok(root) => root,
            Err(reason) => return Ok(Verdict::Skipped(format!("{reason:#}"))),
        };
        let built = plugin::build(Some(&root))?;
        ensure!(built.layout.number == 65, "forky's libibverbs is of layout {}", built.layout.number);
        inspect::symbols(&built.library, built.layout)?;
        inspect::data_path(&built.unstripped).map(|()| Verdict::Passed)
    });
}
