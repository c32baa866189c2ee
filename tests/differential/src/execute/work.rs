//! Posts of work requests.

use std::mem::zeroed;
use std::ptr::{null_mut, without_provenance_mut};

use rdma_core_sys::bindings::*;
use rdma_core_sys::inline::*;

use super::objects::{Objects, of};
use super::queues::Q_KEY;
use super::{arena, error, tell};
use crate::program::{Bind, Element, Key, Receive, Send, Slot};

/// Elements as the library has them; `None` if an object is not there.
fn elements(objects: &Objects<'_>, list: &[Element]) -> Option<Vec<ibv_sge>> {
    list.iter()
        .map(|element| {
            Some(ibv_sge {
                addr: arena::ADDRESS + u64::from(element.place.offset),
                length: element.length,
                lkey: objects.local_key(element.place.key)?,
            })
        })
        .collect()
}

/// `sg_list` of a request.
fn list_of(elements: &mut Vec<ibv_sge>, stale: bool) -> *mut ibv_sge {
    match (elements.is_empty(), stale) {
        (false, _) => elements.as_mut_ptr(),
        (true, true) => arena::stale_element(),
        (true, false) => null_mut(),
    }
}

/// Writes how a post ended. `bad` is the place of the refused request in the list, or what was left there.
fn tell_post(verb: &str, result: i32, errno: i32, bad: Option<usize>) {
    tell(verb, |line| match bad {
        Some(index) if result != 0 => line.result(result, errno).with("bad_wr", index),
        _ if result != 0 => line.result(result, errno).with("bad_wr", "none"),
        _ => line.result(result, errno),
    });
}

/// `ibv_post_send`.
pub fn send(objects: &mut Objects<'_>, qp: Slot, list: &[Send]) -> Option<()> {
    let raw = objects.to_post_to(qp)?;
    // SAFETY: alive.
    let is_datagram = unsafe { (*raw).qp_type } == IBV_QPT_UD;
    let mut lists = list.iter().map(|send| elements(objects, &send.elements)).collect::<Option<Vec<_>>>()?;
    let mut requests = Vec::with_capacity(list.len());
    for (number, (send, elements)) in list.iter().zip(&mut lists).enumerate() {
        // SAFETY: all bytes zero is a value of the plain struct.
        let mut request: ibv_send_wr = unsafe { zeroed() };
        request.wr_id = objects.posted + number as u64;
        request.opcode = send.opcode;
        request.send_flags = send.flags;
        request.sg_list = list_of(elements, send.stale);
        request.num_sge = elements.len() as i32;
        request.__bindgen_anon_1.imm_data = send.immediate.to_be();
        let key = objects.remote_key(send.remote);
        match send.opcode {
            IBV_WR_SEND_WITH_INV | IBV_WR_LOCAL_INV => request.__bindgen_anon_1.invalidate_rkey = key?,
            IBV_WR_BIND_MW => {
                let Key::Mw(window) = send.remote.key else { return None };
                let mw = of(&objects.mws, window)?;
                // SAFETY: alive.
                let rkey = unsafe { ibv_inc_rkey((*mw).rkey) };
                request.__bindgen_anon_2.bind_mw.mw = mw;
                request.__bindgen_anon_2.bind_mw.rkey = rkey;
                request.__bindgen_anon_2.bind_mw.bind_info = bind_info(objects, &send.bind)?;
            }
            _ => {}
        }
        match send.opcode {
            IBV_WR_BIND_MW => {}
            _ if is_datagram => {
                request.wr.ud.ah = of(&objects.ahs, send.ah)?;
                // SAFETY: alive.
                request.wr.ud.remote_qpn = unsafe { (*of(&objects.qps, send.peer)?).qp_num };
                request.wr.ud.remote_qkey = Q_KEY;
            }
            IBV_WR_SEND_WITH_INV | IBV_WR_LOCAL_INV => {}
            IBV_WR_ATOMIC_CMP_AND_SWP | IBV_WR_ATOMIC_FETCH_AND_ADD => {
                request.wr.atomic.remote_addr = arena::ADDRESS + u64::from(send.remote.offset);
                request.wr.atomic.rkey = key?;
                // All of its bits, in either word.
                let number = u64::from(send.immediate).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                (request.wr.atomic.compare_add, request.wr.atomic.swap) = (number, !number);
            }
            _ => {
                request.wr.rdma.remote_addr = arena::ADDRESS + u64::from(send.remote.offset);
                request.wr.rdma.rkey = key?;
            }
        }
        requests.push(request);
    }
    for index in (1..requests.len()).rev() {
        requests[index - 1].next = &mut requests[index];
    }
    let first = requests.first_mut().map_or(null_mut(), |first| &raw mut *first);
    // What a post must not leave there when it refuses a request.
    let mut bad = without_provenance_mut(8);
    error::set(0);
    // SAFETY: the queue pair is alive, the list linked, everything it points to valid.
    let result = unsafe { ibv_post_send(raw, first, &mut bad) };
    let errno = error::last();
    let bad = requests.iter().position(|request| std::ptr::eq(request, bad));
    tell_post("post_send", result, errno, bad);
    for send in list.iter().filter(|send| send.opcode == IBV_WR_BIND_MW) {
        let Key::Mw(window) = send.remote.key else { continue };
        // SAFETY: alive.
        let rkey = of(&objects.mws, window).map(|mw| unsafe { (*mw).rkey });
        tell("window", |line| line.hex("rkey", rkey.unwrap_or(0).into()));
    }
    objects.posted += list.len() as u64;
    Some(())
}

/// `ibv_post_recv`.
pub fn receive(objects: &mut Objects<'_>, qp: Slot, list: &[Receive]) -> Option<()> {
    let raw = objects.to_post_to(qp)?;
    post_receives("post_recv", objects, list, |first, bad| {
        // SAFETY: the queue pair is alive, the list linked, everything it points to valid.
        unsafe { ibv_post_recv(raw, first, bad) }
    })
}

/// Posts receives by a verb; `post` gets the first of a list, and where to put the one that is refused.
pub fn post_receives(
    verb: &str,
    objects: &mut Objects<'_>,
    list: &[Receive],
    post: impl FnOnce(*mut ibv_recv_wr, &mut *mut ibv_recv_wr) -> i32,
) -> Option<()> {
    let mut lists =
        list.iter().map(|receive| elements(objects, &receive.elements)).collect::<Option<Vec<_>>>()?;
    let mut requests: Vec<ibv_recv_wr> = Vec::with_capacity(list.len());
    for (number, (receive, elements)) in list.iter().zip(&mut lists).enumerate() {
        requests.push(ibv_recv_wr {
            wr_id: objects.posted + number as u64,
            next: null_mut(),
            sg_list: list_of(elements, receive.stale),
            num_sge: elements.len() as i32,
        });
    }
    for index in (1..requests.len()).rev() {
        requests[index - 1].next = &mut requests[index];
    }
    let first = requests.first_mut().map_or(null_mut(), |first| &raw mut *first);
    let mut bad = without_provenance_mut(8);
    error::set(0);
    let result = post(first, &mut bad);
    let errno = error::last();
    let bad = requests.iter().position(|request| std::ptr::eq(request, bad));
    tell_post(verb, result, errno, bad);
    objects.posted += list.len() as u64;
    Some(())
}

fn bind_info(objects: &Objects<'_>, bind: &Bind) -> Option<ibv_mw_bind_info> {
    Some(ibv_mw_bind_info {
        mr: of(&objects.mrs, bind.mr)?,
        addr: arena::ADDRESS + u64::from(bind.offset),
        length: bind.length,
        mw_access_flags: bind.access,
    })
}

/// `ibv_bind_mw`.
pub fn bind(objects: &mut Objects<'_>, qp: Slot, mw: Slot, bind: &Bind, flags: u32) -> Option<()> {
    let (raw, window) = (objects.to_post_to(qp)?, of(&objects.mws, mw)?);
    let mut request =
        ibv_mw_bind { wr_id: objects.posted, send_flags: flags, bind_info: bind_info(objects, bind)? };
    error::set(0);
    // SAFETY: all objects are alive, the request valid for the call.
    let result = unsafe { ibv_bind_mw(raw, window, &mut request) };
    let errno = error::last();
    // SAFETY: alive.
    let rkey = unsafe { (*window).rkey };
    tell("bind_mw", |line| line.result(result, errno).hex("rkey", rkey.into()));
    objects.posted += 1;
    Some(())
}
