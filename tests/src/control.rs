//! Orders to the software device that a program runs on: faults, hand-made completions, counts.
//!
//! The preloaded library exports `irdma_sim_control`, which takes a command in
//! text, as `irdma-sim ctl` does, and gives the answer in text.

use std::collections::BTreeMap;
use std::ffi::{CString, c_char, c_long};
use std::fmt::Write;

use crate::cq::Cq;
use crate::device::Device;
use crate::qp::Qp;

/// `irdma_sim_control(command, reply, size of reply)`: length of the reply, or a negative errno.
type Control = unsafe extern "C" fn(*const c_char, *mut c_char, usize) -> c_long;

/// Gives the device a command; its answer, or its refusal.
pub fn try_control(command: &str) -> Result<String, String> {
    // SAFETY: a plain look-up by name.
    let symbol = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"irdma_sim_control".as_ptr()) };
    if symbol.is_null() {
        return Err("no irdma_sim_control: not on the software device".to_owned());
    }
    // SAFETY: the preloaded library declares the symbol so.
    let function: Control = unsafe { std::mem::transmute::<*mut libc::c_void, Control>(symbol) };
    let text = CString::new(command).expect("commands have no zero byte");
    let mut reply = vec![0u8; 32768];
    // SAFETY: both buffers are valid for the call and the size is that of `reply`.
    let result = unsafe { function(text.as_ptr(), reply.as_mut_ptr().cast(), reply.len()) };
    let length = reply.iter().position(|&byte| byte == 0).unwrap_or(reply.len());
    let answer = String::from_utf8_lossy(&reply[..length]).into_owned();
    if result < 0 { Err(format!("errno {}: {answer}", -result)) } else { Ok(answer) }
}

/// Gives the device a command, which it must accept.
#[track_caller]
pub fn control(command: &str) -> String {
    try_control(command).unwrap_or_else(|refusal| panic!("device command \"{command}\": {refusal}"))
}

/// How many objects of each kind the device holds for all programs.
pub fn object_counts() -> BTreeMap<String, u64> {
    let status = control("status");
    let total = status.lines().find_map(|line| line.strip_prefix("total:")).expect("a line with the sums");
    let words: Vec<_> = total.split_whitespace().collect();
    words.chunks_exact(2).map(|pair| (pair[0].to_owned(), pair[1].parse().expect("a count"))).collect()
}

/// What the device knows a queue pair and its queues by.
#[derive(Clone, Copy, Debug)]
pub struct HardwareNames {
    /// Comes back in every CQE of the queue pair.
    pub context: u64,
    /// CQ of its sends.
    pub send_cq: u32,
    /// CQ of its receives.
    pub recv_cq: u32,
}

/// The device's names for `qp`.
pub fn names_of(qp: &Qp) -> HardwareNames {
    let list = control("list");
    let prefix = format!("qp {} ", qp.number());
    let line = list.lines().find_map(|line| line.strip_prefix(&prefix)).expect("the queue pair is listed");
    let words: Vec<_> = line.split_whitespace().collect();
    let value = |name: &str| {
        let index = words.iter().position(|word| *word == name).expect("a name of the list");
        words[index + 1]
    };
    HardwareNames {
        context: u64::from_str_radix(value("context").trim_start_matches("0x"), 16).expect("hexadecimal"),
        send_cq: value("send_cq").parse().expect("a number"),
        recv_cq: value("recv_cq").parse().expect("a number"),
    }
}

/// A CQE made by hand; the device sets the valid bit when it writes it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cqe {
    /// Quadwords of the first slot.
    pub words: [u64; 4],
    /// Quadwords of the extension, if there is one.
    pub extension: Option<[u64; 4]>,
}

impl Cqe {
    const SEND_QUEUE: u64 = 1 << 62;
    const ERROR: u64 = 1 << 55;
    const EXTENDED: u64 = 1 << 50;
    /// In the last quadword of an extension: it holds immediate data.
    const IMMEDIATE: u64 = 1 << 62;

    /// A successful completion of the request at `index` of a send queue.
    pub fn sent(qp: &Qp, context: u64, index: u32, opcode: u32) -> Cqe {
        // The kernel's own come first.
        let index = (index + Device::present().connection_requests) & 0x7fff;
        let last = Cqe::SEND_QUEUE | u64::from(opcode) << 56 | u64::from(index) << 32;
        Cqe { words: [0, context, u64::from(qp.number()) << 32, last], extension: None }
    }

    /// A successful completion of the request at `index` of a receive queue.
    pub fn received(qp: &Qp, context: u64, index: u32, opcode: u32, length: u32) -> Cqe {
        let last = u64::from(opcode) << 56 | u64::from(index) << 32;
        Cqe { words: [u64::from(length), context, u64::from(qp.number()) << 32, last], extension: None }
    }

    /// The same with immediate data.
    pub fn immediate(mut self, immediate: u32) -> Cqe {
        self.words[3] |= Cqe::EXTENDED;
        self.extension = Some([u64::from(immediate), 0, 0, Cqe::IMMEDIATE]);
        self
    }

    /// The same, announcing an extension that is not there yet.
    pub fn incomplete(mut self) -> Cqe {
        self.words[3] |= Cqe::EXTENDED;
        self.extension = None;
        self
    }

    /// The same, failed.
    pub fn failed(mut self, major: u16, minor: u16) -> Cqe {
        self.words[3] |= Cqe::ERROR | u64::from(major) << 16 | u64::from(minor);
        self
    }

    /// Lets the device write it to CQ `number`. Where CQEs have 64 bytes, the second half is
    /// there in any case.
    #[track_caller]
    pub fn write(&self, number: u32) {
        let wide = Device::present().cqe_size == 64;
        let extension = if wide { Some(self.extension.unwrap_or_default()) } else { self.extension };
        let mut command = format!("cqe {number} ");
        for word in self.words.iter().chain(extension.iter().flatten()) {
            for byte in word.to_le_bytes() {
                // Writing to a string cannot fail.
                let _ = write!(command, "{byte:02x}");
            }
        }
        control(&command);
    }
}

/// Polls until nothing is there; a queue must run empty.
#[track_caller]
pub fn drain(cq: &Cq) -> Vec<crate::wc::Wc> {
    let mut all = Vec::new();
    for _ in 0..100_000 {
        let some = cq.poll(8);
        if some.is_empty() {
            return all;
        }
        all.extend(some);
    }
    panic!("the queue never runs empty");
}
