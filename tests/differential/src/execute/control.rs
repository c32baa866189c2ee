//! Verbs that make, change and destroy everything but queues.

use std::mem::zeroed;

use rdma_core_sys::bindings::*;
use rdma_core_sys::inline::*;

use super::objects::{Objects, free, of};
use super::{arena, error, tell};
use crate::program::{Command, Step};

/// The port that everything is on.
pub const PORT: u8 = 1;

/// Writes how a verb ended that returns an object; what it returned.
pub fn object<T>(verb: &str, call: impl FnOnce() -> *mut T) -> Option<*mut T> {
    error::set(0);
    let object = call();
    let errno = error::last();
    tell(verb, |line| if object.is_null() { line.with("errno", errno) } else { line.with("made", 1) });
    (!object.is_null()).then_some(object)
}

/// Writes how a verb ended that returns a number; whether it succeeded.
pub fn status(verb: &str, call: impl FnOnce() -> i32) -> bool {
    error::set(0);
    let result = call();
    let errno = error::last();
    tell(verb, |line| line.result(result, errno));
    result == 0
}

/// Runs a step; `None` if an object it needs is not there.
pub fn perform(objects: &mut Objects<'_>, step: &Step) -> Option<()> {
    let context = objects.context;
    // SAFETY: every object in a slot is alive, and every argument valid for its call.
    unsafe {
        match *step {
            Step::QueryDevice { port } => query(objects, port),
            Step::AllocPd { pd } => {
                let place = free(&mut objects.pds, pd)?;
                *place = object("alloc_pd", || ibv_alloc_pd(context));
            }
            Step::DeallocPd { pd } => {
                let raw = of(&objects.pds, pd)?;
                if status("dealloc_pd", || ibv_dealloc_pd(raw)) {
                    objects.pds[usize::from(pd)] = None;
                }
            }
            Step::RegMr { mr, pd, offset, length, access } => {
                let raw = of(&objects.pds, pd)?;
                let place = free(&mut objects.mrs, mr)?;
                let address = arena::ADDRESS + u64::from(offset);
                *place = object("reg_mr", || {
                    ibv_reg_mr_iova2(raw, address as *mut _, length as usize, address, access)
                });
                if let Some(mr) = *place {
                    let ibv_mr { addr, length, lkey, rkey, .. } = *mr;
                    tell("mr", |line| {
                        line.hex("addr", addr as u64)
                            .with("length", length)
                            .hex("lkey", lkey.into())
                            .hex("rkey", rkey.into())
                    });
                }
            }
            Step::ReregMr { mr, flags, pd, offset, length, access } => {
                let raw = of(&objects.mrs, mr)?;
                let pd = of(&objects.pds, pd)?;
                let address = (arena::ADDRESS + u64::from(offset)) as *mut _;
                status("rereg_mr", || {
                    ibv_rereg_mr(raw, flags as i32, pd, address, length as usize, access as i32)
                });
                let ibv_mr { addr, length, lkey, rkey, .. } = *raw;
                tell("mr", |line| {
                    line.hex("addr", addr as u64)
                        .with("length", length)
                        .hex("lkey", lkey.into())
                        .hex("rkey", rkey.into())
                });
            }
            Step::DeregMr { mr } => {
                let raw = of(&objects.mrs, mr)?;
                if status("dereg_mr", || ibv_dereg_mr(raw)) {
                    objects.mrs[usize::from(mr)] = None;
                }
            }
            Step::AllocMw { mw, pd, kind } => {
                let raw = of(&objects.pds, pd)?;
                let place = free(&mut objects.mws, mw)?;
                *place = object("alloc_mw", || ibv_alloc_mw(raw, kind));
                if let Some(mw) = *place {
                    let ibv_mw { rkey, type_, .. } = *mw;
                    tell("mw", |line| line.hex("rkey", rkey.into()).with("type", type_));
                }
            }
            Step::DeallocMw { mw } => {
                let raw = of(&objects.mws, mw)?;
                if status("dealloc_mw", || ibv_dealloc_mw(raw)) {
                    objects.mws[usize::from(mw)] = None;
                }
            }
            Step::CreateChannel { channel } => {
                let place = free(&mut objects.channels, channel)?;
                *place = object("create_comp_channel", || ibv_create_comp_channel(context));
            }
            Step::DestroyChannel { channel } => {
                let raw = of(&objects.channels, channel)?;
                if status("destroy_comp_channel", || ibv_destroy_comp_channel(raw)) {
                    objects.channels[usize::from(channel)] = None;
                }
            }
            Step::CreateAh { ah, pd, gid_index, port, is_global, destination } => {
                let (raw, gid) = (of(&objects.pds, pd)?, objects.gid(destination));
                let place = free(&mut objects.ahs, ah)?;
                let mut attributes: ibv_ah_attr = zeroed();
                attributes.grh.dgid = gid;
                attributes.grh.sgid_index = gid_index;
                attributes.grh.hop_limit = 64;
                attributes.is_global = is_global.into();
                attributes.port_num = port;
                *place = object("create_ah", || ibv_create_ah(raw, &mut attributes));
            }
            Step::DestroyAh { ah } => {
                let raw = of(&objects.ahs, ah)?;
                if status("destroy_ah", || ibv_destroy_ah(raw)) {
                    objects.ahs[usize::from(ah)] = None;
                }
            }
            Step::AttachMulticast { qp, group } => {
                let (raw, gid) = (of(&objects.qps, qp)?, multicast(group));
                status("attach_mcast", || ibv_attach_mcast(raw, &gid, 0));
            }
            Step::DetachMulticast { qp, group } => {
                let (raw, gid) = (of(&objects.qps, qp)?, multicast(group));
                status("detach_mcast", || ibv_detach_mcast(raw, &gid, 0));
            }
            Step::Fail { command, nth, errno } => {
                irdma_tests::control::control(&format!("fail {} {nth} {errno} 1", name(command)));
            }
            Step::FailNoMore => drop(irdma_tests::control::control("fail clear")),
            _ => return None,
        }
    }
    Some(())
}

/// Asks about the device and a port.
fn query(objects: &Objects<'_>, port: u8) {
    // SAFETY: the context is open, the structs are valid for the calls.
    unsafe {
        let mut device: ibv_device_attr_ex = zeroed();
        let input = std::ptr::null();
        status("query_device_ex", || ibv_query_device_ex(objects.context, input, &mut device));
        let entries = std::mem::take(&mut device.orig_attr.max_cqe);
        let all = std::slice::from_raw_parts((&raw const device).cast(), size_of_val(&device));
        tell("device", |line| line.with("max_cqe", entries).bytes("attr", all));
        let mut attributes: ibv_port_attr = zeroed();
        status("query_port", || ibv_query_port(objects.context, port, (&raw mut attributes).cast()));
        let all = std::slice::from_raw_parts((&raw const attributes).cast(), size_of_val(&attributes));
        tell("port", |line| line.bytes("attr", all));
    }
}

/// GIDs of the port that programs use.
const GIDS: i32 = 3;

/// The first GIDs of the port, which are the same for every program.
///
/// # Safety
/// `device` is of a device list.
pub unsafe fn port_gids(device: *mut ibv_device) -> Vec<ibv_gid> {
    // SAFETY: as the caller promises; the context is open, and each GID valid for the call.
    unsafe {
        let context = ibv_open_device(device);
        assert!(!context.is_null(), "the device opens");
        let query = |index| {
            let mut gid = ibv_gid { raw: [0; 16] };
            (ibv_query_gid(context, PORT, index, &mut gid) == 0).then_some(gid)
        };
        let gids = (0..GIDS).map_while(query).collect();
        ibv_close_device(context);
        gids
    }
}

/// The GID of a multicast group.
fn multicast(group: u8) -> ibv_gid {
    let mut raw = [0; 16];
    (raw[0], raw[1], raw[15]) = (0xff, 0x0e, group);
    ibv_gid { raw }
}

/// What the device calls a command.
fn name(command: Command) -> &'static str {
    match command {
        Command::AllocPd => "alloc_pd",
        Command::RegMr => "reg_mr",
        Command::DeregMr => "dereg_mr",
        Command::CreateCq => "create_cq",
        Command::DestroyCq => "destroy_cq",
        Command::ResizeCq => "resize_cq",
        Command::CreateSrq => "create_srq",
        Command::ModifySrq => "modify_srq",
        Command::CreateQp => "create_qp",
        Command::ModifyQp => "modify_qp",
        Command::DestroyQp => "destroy_qp",
        Command::CreateAh => "create_ah",
        Command::AllocMw => "alloc_mw",
    }
}
