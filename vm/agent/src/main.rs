//! The agent: runs what the harness asks for, and tells it what the kernel logs.

mod control_group;
mod kernel_log;
mod run;

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::BufReader;
use std::sync::{Arc, Mutex};
use std::thread;

use anyhow::{Context, Result, anyhow};
use irdma_vm_agent::{PORT, Report, Request};

use control_group::ControlGroup;

/// The port, for all threads that have something to report.
#[derive(Clone)]
struct Reports(Arc<Mutex<File>>);

impl Reports {
    /// Sends a report. A harness that is gone has ended the machine as well.
    fn send(&self, report: &Report) {
        let mut port = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let _ = report.write(&mut *port);
    }
}

fn main() -> Result<()> {
    let port = open_port()?;
    let reports = Reports(Arc::new(Mutex::new(port.try_clone()?)));
    let mut requests = BufReader::new(port);
    kernel_log::follow(reports.clone())?;
    reports.send(&Report::Ready);
    let mut groups: HashMap<u32, Arc<ControlGroup>> = HashMap::new();
    while let Some(request) = Request::read(&mut requests)? {
        match request {
            Request::Run { run, limit, port, script } => {
                let group = Arc::new(ControlGroup::new(run)?);
                groups.insert(run, group.clone());
                let reports = reports.clone();
                thread::spawn(move || run::carry_out(run, limit, port, &script, &group, &reports));
            }
            Request::Kill { run } => {
                if let Some(group) = groups.get(&run) {
                    group.kill();
                }
            }
            Request::PowerOff => break,
        }
    }
    Ok(())
}

/// The port by its name: there is no udev to give it one below /dev.
fn open_port() -> Result<File> {
    for entry in fs::read_dir("/sys/class/virtio-ports").context("no virtio ports")?.flatten() {
        let name = fs::read_to_string(entry.path().join("name")).unwrap_or_default();
        if name.trim() == PORT {
            let device = std::path::Path::new("/dev").join(entry.file_name());
            return OpenOptions::new().read(true).write(true).open(&device).context("cannot open the port");
        }
    }
    Err(anyhow!("no virtio port is called {PORT}"))
}
