//! Runs programs in this process, on whichever provider libibverbs loads, and tells what they saw.
//!
//! Programs come as lines of JSON on the standard input. The trace of each goes to the
//! standard output, one event a line, with a line [`END`] behind it.

pub mod arena;
mod completions;
mod control;
mod error;
mod events;
mod hook;
mod layouts;
mod objects;
mod observe;
mod queues;
mod rings;
mod shared;
mod trace;
mod work;

use std::ffi::c_long;
use std::io::{BufRead, Write};

use anyhow::{Context, Result, ensure};
use rdma_core_sys::bindings::*;

use crate::program::{Program, Step};
use objects::Objects;
use observe::Observer;
use trace::Line;

/// The last line of a trace if the provider has the device open after all is closed: the process ends then.
pub const LEFT_OPEN: &str = "left_open";

/// Ends a trace.
pub const END: &str = ".";

/// Runs what comes until nothing more comes.
pub fn run() -> Result<()> {
    arena::map().context("no place for the arena")?;
    hook::save_at_crash();
    let device = first_device()?;
    // SAFETY: of the list, which is never freed.
    let gids = unsafe { control::port_gids(device) };
    let mut output = std::io::stdout().lock();
    irdma_tests::control::control("restart");
    for line in std::io::stdin().lock().lines() {
        let program: Program = serde_json::from_str(&line?)?;
        let trace = execute(device, &gids, &program)?;
        output.write_all(trace.as_bytes())?;
        // For the next one; the device does so only when nobody has it open.
        let is_closed = irdma_tests::control::try_control("restart").is_ok();
        if !is_closed {
            writeln!(output, "{LEFT_OPEN}")?;
        }
        writeln!(output, "{END}")?;
        output.flush()?;
        if !is_closed {
            break;
        }
    }
    Ok(())
}

/// The device under test.
fn first_device() -> Result<*mut ibv_device> {
    // SAFETY: no argument; the list is never freed, as its devices are used until the end.
    let list = unsafe { ibv_get_device_list(std::ptr::null_mut()) };
    ensure!(!list.is_null(), "no device list");
    // SAFETY: a list ends with a null pointer, so it has a first entry.
    let device = unsafe { *list };
    ensure!(!device.is_null(), "libibverbs sees no device: its provider did not load");
    Ok(device)
}

/// Runs one program on a context of its own.
fn execute(device: *mut ibv_device, gids: &[ibv_gid], program: &[Step]) -> Result<String> {
    // Of the device before it is opened by the program.
    irdma_tests::device::Device::present();
    arena::fill();
    hook::observe(Some(Observer::default()));
    // SAFETY: of the list, which is never freed.
    let context = unsafe { ibv_open_device(device) };
    ensure!(!context.is_null(), "the device does not open: errno {}", error::last());
    // With an object of its own a context has whatever objects need; the C provider's has it as it is opened.
    // SAFETY: the context is open, and the domain in no use.
    unsafe {
        let domain = ibv_alloc_pd(context);
        ensure!(!domain.is_null() && ibv_dealloc_pd(domain) == 0, "no domain: errno {}", error::last());
    }
    let page = doorbell_page(context)?;
    hook::observer(|observer| observer.set_doorbells(page));
    let mut objects = Objects::new(context, gids);
    for (number, step) in program.iter().enumerate() {
        line(format_args!("step {number}"));
        perform(&mut objects, step);
        hook::observer(Observer::look);
    }
    line("step end");
    let digest = arena::digest();
    tell("arena", |line| line.hex("digest", digest));
    objects.destroy_all();
    // SAFETY: open, and nothing of it is left.
    let result = unsafe { ibv_close_device(context) };
    tell("close_device", |line| line.with("result", result));
    let observer = hook::observe(None);
    Ok(observer.map(|mut observer| observer.trace.take()).unwrap_or_default())
}

/// Writes an empty line of that kind.
fn line(kind: impl std::fmt::Display) {
    hook::observer(|observer| drop(observer.trace.line(kind)));
}

/// Writes a line.
fn tell(kind: &str, values: impl FnOnce(Line<'_>) -> Line<'_>) {
    hook::observer(|observer| drop(values(observer.trace.line(kind))));
}

/// The page that doorbells are stored to: the provider's mapping of the device node.
fn doorbell_page(context: *mut ibv_context) -> Result<*mut u8> {
    // SAFETY: an all-zero stat is a value of the plain struct.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the context is open, `status` is valid for the call.
    let result = unsafe { libc::fstat((*context).cmd_fd, &mut status) };
    ensure!(result == 0, "no status of the device node");
    let node = format!(" {} ", status.st_ino);
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    let line = maps.lines().find(|line| line.contains(&node)).context("no mapping of the device node")?;
    let (start, _) = line.split_once('-').context("a range of addresses")?;
    Ok(u64::from_str_radix(start, 16)? as *mut u8)
}

/// Runs a step.
fn perform(objects: &mut Objects<'_>, step: &Step) {
    let done = match step {
        Step::Run { times } => {
            run_device(*times);
            Some(())
        }
        Step::Careful { posts_on } => {
            (objects.careful, objects.posts_on) = (true, *posts_on);
            Some(())
        }
        Step::TakeEvents { channel } => events::take(objects, *channel),
        Step::TakeAsyncEvents => events::take_asynchronous(objects),
        Step::PostSend { qp, list } => work::send(objects, *qp, list),
        Step::PostRecv { qp, list } => work::receive(objects, *qp, list),
        Step::BindMw { qp, mw, bind, flags } => work::bind(objects, *qp, *mw, bind, *flags),
        Step::Poll { cq, count } => completions::poll(objects, *cq, *count),
        Step::PollEx { cq, count } => completions::poll_extended(objects, *cq, *count),
        Step::CreateCq { .. }
        | Step::CreateCqEx { .. }
        | Step::ResizeCq { .. }
        | Step::DestroyCq { .. }
        | Step::Arm { .. }
        | Step::CreateQp { .. }
        | Step::ModifyQp { .. }
        | Step::QueryQp { .. }
        | Step::DestroyQp { .. } => queues::perform(objects, step),
        Step::CreateSrq { .. }
        | Step::ModifySrq { .. }
        | Step::QuerySrq { .. }
        | Step::DestroySrq { .. }
        | Step::PostSrqRecv { .. } => shared::perform(objects, step),
        _ => control::perform(objects, step),
    };
    if done.is_none() {
        line("left out");
    }
}

/// Lets the device work.
fn run_device(times: u8) {
    // SAFETY: a plain look-up by name.
    let symbol = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"irdma_sim_step".as_ptr()) };
    assert!(!symbol.is_null(), "this program runs on the software device only");
    // SAFETY: the preload library declares it so.
    let step: extern "C" fn() -> c_long = unsafe { std::mem::transmute(symbol) };
    for _ in 0..times {
        let result = step();
        assert!(result >= 0, "the device works: {result}");
    }
    let digest = arena::digest();
    tell("arena", |line| line.hex("digest", digest));
}
