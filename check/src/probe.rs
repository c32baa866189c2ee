//! The part that loads libibverbs and opens devices: in a process of its own, which may fail or hang.
//!
//! It prints one line of JSON for each thing that it learns, so that what was learnt before
//! stays.

use std::ffi::{CStr, OsStr, c_void};
use std::io::{self, Write};
use std::path::Path;

use rdma_core_sys::bindings::{ibv_context, ibv_device, ibv_device_attr};
use serde::{Deserialize, Serialize};

use crate::files::Root;
use crate::negotiation::{self, Negotiated};
use crate::node;
use crate::trial::{self, Trial};
use crate::verbs::{self, Verbs};

/// A line.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Line {
    /// The libibverbs that was loaded.
    Library(String),
    /// Why none was.
    NoLibrary(String),
    /// The plugins of irdma that it has loaded.
    Loaded(Vec<String>),
    /// The device that is looked at from here on.
    Begin(String),
    /// What was learnt of it.
    Device(Box<Answer>),
    /// Nothing more comes.
    End,
}

/// What was learnt of a device.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// What the kernel answered, asked without libibverbs.
    pub negotiated: Option<Negotiated>,
    /// Why it did not.
    pub kernel_error: Option<String>,
    /// Whether libibverbs offers the device to programs; none without libibverbs.
    pub is_offered: Option<bool>,
    /// Why libibverbs or the provider does not open it.
    pub open_error: Option<String>,
    /// The file of the provider that serves it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Its limits, as programs see them.
    pub limits: Option<Limits>,
    /// A queue pair that was made.
    pub trial: Option<Trial>,
}

/// What `ibv_query_device` says.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "see ibv_query_device(3)")]
pub struct Limits {
    pub max_qp: i32,
    pub max_qp_wr: i32,
    pub max_sge: i32,
    pub max_sge_rd: i32,
    pub max_cq: i32,
    pub max_cqe: i32,
    pub max_mr: i32,
    pub max_mr_size: u64,
    pub max_mw: i32,
    pub max_pd: i32,
    pub max_ah: i32,
    pub max_srq: i32,
    pub max_srq_wr: i32,
    pub max_srq_sge: i32,
    pub max_qp_rd_atom: i32,
    pub max_qp_init_rd_atom: i32,
    pub atomics: bool,
}

/// Looks at each of the devices, and prints what it finds.
pub fn run(library: &OsStr, names: &[String]) -> io::Result<()> {
    let mut output = io::stdout();
    let mut print = |line: &Line| -> io::Result<()> {
        serde_json::to_writer(&mut output, line)?;
        output.write_all(b"\n")?;
        output.flush()
    };
    let verbs = Verbs::load(library);
    print(&match &verbs {
        // Any function of it will do.
        Ok(verbs) => {
            Line::Library(verbs::file_of(verbs.ibv_open_device as *const c_void).unwrap_or_default())
        }
        Err(reason) => Line::NoLibrary(reason.clone()),
    })?;
    let list = verbs.as_ref().ok().map(List::of);
    print(&Line::Loaded(loaded(&std::fs::read_to_string("/proc/self/maps").unwrap_or_default())))?;
    let root = Root::new("/".into());
    for name in names {
        print(&Line::Begin(name.clone()))?;
        let mut answer = Answer::default();
        if let Some(node) = node::of(&root, name) {
            match negotiation::ask(Path::new(&node.path)) {
                Ok(negotiated) => answer.negotiated = Some(negotiated),
                Err(error) => answer.kernel_error = Some(error.to_string()),
            }
        }
        if let Some(list) = &list {
            // SAFETY: in the list, which stays until the end.
            unsafe { list.look(name, &mut answer) };
        }
        print(&Line::Device(Box::new(answer)))?;
    }
    drop(list);
    print(&Line::End)
}

/// The plugins of irdma among what a process has mapped.
fn loaded(maps: &str) -> Vec<String> {
    let mut files: Vec<String> = maps
        .lines()
        .filter_map(|line| Some(line[line.find('/')?..].to_owned()))
        .filter(|file| file.rsplit('/').next().is_some_and(|name| name.starts_with("libirdma-rdmav")))
        .collect();
    files.dedup();
    files
}

/// The devices that libibverbs offers.
struct List<'verbs> {
    verbs: &'verbs Verbs,
    devices: *mut *mut ibv_device,
    error: Option<String>,
}

impl<'verbs> List<'verbs> {
    fn of(verbs: &'verbs Verbs) -> List<'verbs> {
        // SAFETY: the number is not asked for: the list ends with null.
        let devices = unsafe { (verbs.ibv_get_device_list)(std::ptr::null_mut()) };
        let error = devices.is_null().then(|| io::Error::last_os_error().to_string());
        List { verbs, devices, error }
    }

    /// The one with that name.
    fn find(&self, name: &str) -> Option<*mut ibv_device> {
        let mut at = self.devices;
        while !at.is_null() {
            // SAFETY: before the end of the list.
            let device = unsafe { *at };
            if device.is_null() {
                return None;
            }
            // SAFETY: a device has a terminated name.
            let found = unsafe { CStr::from_ptr((self.verbs.ibv_get_device_name)(device)) };
            if found.to_bytes() == name.as_bytes() {
                return Some(device);
            }
            // SAFETY: this was not the end.
            at = unsafe { at.add(1) };
        }
        None
    }

    /// Opens a device and looks at it.
    ///
    /// # Safety
    /// The library works as its headers say.
    unsafe fn look(&self, name: &str, answer: &mut Answer) {
        let device = self.find(name);
        answer.is_offered = Some(device.is_some());
        let Some(device) = device else {
            answer.open_error.clone_from(&self.error);
            return;
        };
        // SAFETY: as the caller promises; in the list.
        let context = unsafe { (self.verbs.ibv_open_device)(device) };
        if context.is_null() {
            answer.open_error = Some(io::Error::last_os_error().to_string());
            return;
        }
        // SAFETY: open until the last line.
        unsafe {
            answer.provider = (*context).ops.poll_cq.and_then(|code| verbs::file_of(code as *const c_void));
            answer.limits = self.limits(context);
            let iwarp = (*device).node_type == rdma_core_sys::bindings::IBV_NODE_RNIC;
            answer.trial = Some(trial::run(self.verbs, context, iwarp));
            (self.verbs.ibv_close_device)(context);
        }
    }

    /// # Safety
    /// The context is open.
    unsafe fn limits(&self, context: *mut ibv_context) -> Option<Limits> {
        let mut said = ibv_device_attr::default();
        // SAFETY: as the caller promises.
        if unsafe { (self.verbs.ibv_query_device)(context, &mut said) } != 0 {
            return None;
        }
        Some(Limits {
            max_qp: said.max_qp,
            max_qp_wr: said.max_qp_wr,
            max_sge: said.max_sge,
            max_sge_rd: said.max_sge_rd,
            max_cq: said.max_cq,
            max_cqe: said.max_cqe,
            max_mr: said.max_mr,
            max_mr_size: said.max_mr_size,
            max_mw: said.max_mw,
            max_pd: said.max_pd,
            max_ah: said.max_ah,
            max_srq: said.max_srq,
            max_srq_wr: said.max_srq_wr,
            max_srq_sge: said.max_srq_sge,
            max_qp_rd_atom: said.max_qp_rd_atom,
            max_qp_init_rd_atom: said.max_qp_init_rd_atom,
            atomics: said.atomic_cap != rdma_core_sys::bindings::IBV_ATOMIC_NONE,
        })
    }
}

impl Drop for List<'_> {
    fn drop(&mut self) {
        if !self.devices.is_null() {
            // SAFETY: the list of above; no device of it is open.
            unsafe { (self.verbs.ibv_free_device_list)(self.devices) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugins_are_told_from_other_files() {
        let maps = "7f00-7f01 r--p 0 08:01 1   /usr/lib/libc.so.6\n\
                    7f01-7f02 r--p 0 08:01 2   /opt/a b/libirdma-rdmav34.so\n\
                    7f02-7f03 r-xp 0 08:01 2   /opt/a b/libirdma-rdmav34.so\n\
                    7f03-7f04 rw-p 0 00:00 0\n7f04-7f05 rw-p 0 00:00 0 [heap]\n";
        assert_eq!(loaded(maps), ["/opt/a b/libirdma-rdmav34.so"]);
    }
}
