//! What the kernel's driver answers when a program opens a device, asked without libibverbs.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use rdma_core_sys::driver_data::{
    ABI_VERSION, ABI_VERSION_OLDEST, AllocContextRequest, AllocContextResponse, MAX_HW_SRQ_QUANTA,
    MIN_HW_WQ_SIZE, SUPPORT_WQE_FORMAT_V2, USE_RAW_ATTR,
};
use serde::{Deserialize, Serialize};

/// The answer, as far as this kernel gives it.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Negotiated {
    /// Revision of the hardware; 0 from i40iw.
    pub hardware_revision: u8,
    /// Version of the ABI that the program speaks from here on.
    pub abi: u8,
    /// Names of the features, as the kernel has them.
    pub features: Vec<String>,
    /// Sizes of queues go to the kernel as the program gave them.
    pub raw_attributes: bool,
    /// Queue pairs of the device.
    pub queue_pairs: u32,
    /// Fragments of a work request.
    pub fragments: u32,
    /// Fragments of an RDMA read.
    pub read_fragments: u32,
    /// Bytes of a work request that may be inline.
    pub inline_bytes: u32,
    /// Quanta (of 32 bytes) of a send queue.
    pub send_quanta: u32,
    /// Quanta of a receive queue.
    pub receive_quanta: u32,
    /// Quanta of a shared receive queue, if the kernel says.
    pub shared_quanta: Option<u32>,
    /// Entries of the largest completion queue.
    pub completions: u32,
    /// Work requests of the smallest queue, if the kernel says.
    pub smallest_queue: Option<u16>,
    /// Where in the node's file the doorbell page is.
    pub doorbell_page: u64,
}

/// Bits of `feature_flags` (linux/include/uapi/rdma/irdma-abi.h, docs/hardware.md).
const FEATURES: &[(u32, &str)] = &[
    (0, "RTS_AE"),
    (1, "CQ_RESIZE"),
    (5, "64_BYTE_CQE"),
    (6, "ATOMIC_OPS"),
    (7, "SRQ"),
    (8, "CQE_TIMESTAMPING"),
];

impl Negotiated {
    /// Generation of irdma.
    pub fn generation(&self) -> u8 {
        match self.hardware_revision {
            0 | 1 => 1,
            2 => 2,
            _ => 3,
        }
    }

    fn of(answer: &AllocContextResponse, asked: u8) -> Negotiated {
        let says = |bit| answer.comp_mask & bit != 0;
        let is_legacy = answer.hw_rev == 0;
        let known = FEATURES.iter().fold(0, |all, (bit, _)| all | 1 << bit);
        let names = FEATURES.iter().filter(|(bit, _)| answer.feature_flags >> bit & 1 != 0);
        let mut features: Vec<String> = names.map(|(_, name)| (*name).to_owned()).collect();
        if answer.feature_flags & !known != 0 {
            features.push(format!("{:#x}", answer.feature_flags & !known));
        }
        Negotiated {
            hardware_revision: answer.hw_rev,
            abi: if is_legacy { answer.kernel_ver } else { asked },
            features,
            raw_attributes: !is_legacy && says(USE_RAW_ATTR),
            queue_pairs: answer.max_qps,
            fragments: answer.max_hw_wq_frags,
            read_fragments: answer.max_hw_read_sges,
            inline_bytes: answer.max_hw_inline,
            send_quanta: answer.max_hw_wq_quanta,
            receive_quanta: answer.max_hw_rq_quanta,
            shared_quanta: says(MAX_HW_SRQ_QUANTA).then_some(answer.max_hw_srq_quanta),
            completions: answer.max_hw_cq_size,
            smallest_queue: says(MIN_HW_WQ_SIZE).then_some(answer.min_hw_wq_size),
            doorbell_page: answer.db_mmap_key,
        }
    }
}

/// Asks through the node: with the newest version of the ABI, and with the oldest if the kernel
/// knows no such.
pub fn ask(node: &Path) -> io::Result<Negotiated> {
    match ask_with(node, ABI_VERSION) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => ask_with(node, ABI_VERSION_OLDEST),
        answer => answer,
    }
}

/// `struct ib_uverbs_ioctl_hdr` with room for two of `struct ib_uverbs_attr`
/// (linux/include/uapi/rdma/rdma_user_ioctl_cmds.h).
#[repr(C)]
struct Call {
    length: u16,
    object: u16,
    method: u16,
    attributes: u16,
    reserved1: u64,
    driver: u32,
    reserved2: u32,
    request: Attribute,
    answer: Attribute,
}

#[repr(C)]
struct Attribute {
    number: u16,
    length: u16,
    flags: u16,
    reserved: u16,
    data: u64,
}

const _: () = assert!(size_of::<Call>() == 24 + 2 * 16);

/// `RDMA_VERBS_IOCTL`: read and write, of a header, 0x1b, 1.
const VERBS_IOCTL: libc::c_ulong = 3 << 30 | 24 << 16 | 0x1b << 8 | 1;
/// `UVERBS_OBJECT_DEVICE`, and of that `UVERBS_METHOD_GET_CONTEXT`.
const DEVICE: u16 = 0;
const GET_CONTEXT: u16 = 3;
/// `UVERBS_ATTR_UHW_IN` and `UVERBS_ATTR_UHW_OUT`: what the driver gets and gives.
const DRIVER_IN: u16 = 0x1000;
const DRIVER_OUT: u16 = 0x1001;
/// `UVERBS_ATTR_F_MANDATORY`.
const MANDATORY: u16 = 1;
/// `RDMA_DRIVER_IRDMA`: others' devices refuse.
const IRDMA: u32 = 9;

fn ask_with(node: &Path, version: u8) -> io::Result<Negotiated> {
    let file = OpenOptions::new().read(true).write(true).open(node)?;
    let request = AllocContextRequest {
        userspace_ver: version,
        comp_mask: USE_RAW_ATTR | SUPPORT_WQE_FORMAT_V2,
        ..AllocContextRequest::default()
    };
    let mut answer = AllocContextResponse::default();
    let attribute = |number, length, data| Attribute { number, length, flags: MANDATORY, reserved: 0, data };
    let mut call = Call {
        length: size_of::<Call>() as u16,
        object: DEVICE,
        method: GET_CONTEXT,
        attributes: 2,
        reserved1: 0,
        driver: IRDMA,
        reserved2: 0,
        request: attribute(
            DRIVER_IN,
            size_of_val(&request) as u16,
            (&raw const request).expose_provenance() as u64,
        ),
        answer: attribute(
            DRIVER_OUT,
            size_of_val(&answer) as u16,
            (&raw mut answer).expose_provenance() as u64,
        ),
    };
    // SAFETY: the lengths are those of the structures behind the addresses, which outlive the call.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), VERBS_IOCTL, &raw mut call) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Negotiated::of(&answer, version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_by_its_masks() {
        let answer = AllocContextResponse {
            hw_rev: 3,
            kernel_ver: 5,
            feature_flags: 0x1e3 | 1 << 40,
            comp_mask: USE_RAW_ATTR | MAX_HW_SRQ_QUANTA,
            max_hw_srq_quanta: 262_144,
            min_hw_wq_size: 7,
            ..AllocContextResponse::default()
        };
        let read = Negotiated::of(&answer, 5);
        assert_eq!((read.generation(), read.abi, read.raw_attributes), (3, 5, true));
        let names =
            ["RTS_AE", "CQ_RESIZE", "64_BYTE_CQE", "ATOMIC_OPS", "SRQ", "CQE_TIMESTAMPING", "0x10000000000"];
        assert_eq!(read.features, names);
        assert_eq!((read.shared_quanta, read.smallest_queue), (Some(262_144), None));
    }

    #[test]
    fn the_legacy_kernel_names_its_version() {
        let answer = AllocContextResponse { kernel_ver: 4, comp_mask: 1, ..AllocContextResponse::default() };
        let read = Negotiated::of(&answer, 5);
        assert_eq!((read.generation(), read.abi, read.raw_attributes), (1, 4, false));
    }

    #[test]
    fn what_is_no_node_is_an_error() {
        assert_eq!(ask(Path::new("/dev/null")).unwrap_err().raw_os_error(), Some(libc::ENOTTY));
        assert_eq!(ask(Path::new("/no/such")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
