//! What a program asks about the device, a port, a queue pair.

use core::ffi::{c_char, c_int};

use irdma_hw::limits::{DeviceLimits, Features};
use rdma_core_sys::bindings::{
    IBV_QP_STATE, IBV_QPS_ERR, ib_uverbs_ex_query_device_resp, ibv_cmd_query_device_any, ibv_context,
    ibv_device_attr, ibv_device_attr_ex, ibv_port_attr, ibv_qp, ibv_qp_attr, ibv_qp_init_attr,
    ibv_query_device_ex_input, verbs_context_ops,
};

use crate::boundary;
use crate::command;
use crate::context::Context;
use crate::errno::Errno;
use crate::qp::QueuePair;

unsafe extern "C" fn query_device_ex(
    context: *mut ibv_context,
    input: *const ibv_query_device_ex_input,
    attributes: *mut ibv_device_attr_ex,
    attributes_size: usize,
) -> c_int {
    // SAFETY: libibverbs calls with an open context of ours and the program's struct of that size.
    unsafe {
        boundary::status(context, "query_device", || {
            let mut response = ib_uverbs_ex_query_device_resp::default();
            let mut response_size = size_of_val(&response);
            Errno::check(ibv_cmd_query_device_any(
                context,
                input,
                attributes,
                attributes_size,
                &mut response,
                &mut response_size,
            ))?;
            // Refused by the call above if it were smaller; what is behind it may not be there.
            let device = &mut (*attributes).orig_attr;
            write_firmware_version(&mut device.fw_ver, response.base.fw_ver);
            let context = Context::of(context);
            cut_to_what_can_be_created(device, context.limits());
            if !context.has_had_objects() {
                // The kernel says how many are left, and one is for the provider, with the first object.
                device.max_pd = (device.max_pd - 1).max(0);
            }
            Ok(())
        })
    }
}

/// Writes the firmware's version, "major.minor", as a C string.
fn write_firmware_version(to: &mut [c_char], version: u64) {
    let (major, minor) = (version >> 32 & 0xffff, version & 0xffff);
    let text = format!("{major}.{minor}");
    to.fill(0);
    let room = to.len().saturating_sub(1);
    for (to, byte) in to.iter_mut().take(room).zip(text.bytes()) {
        *to = byte as c_char;
    }
}

/// Lowers what the kernel reports to what a create accepts.
fn cut_to_what_can_be_created(device: &mut ibv_device_attr, limits: &DeviceLimits) {
    let cut = |value: &mut c_int, most: u64| *value = (*value).min(most.try_into().unwrap_or(c_int::MAX));
    // What is too much by any measure is refused with the limit.
    let most = |refused: Option<u64>| refused.unwrap_or(u64::MAX);
    let fragments = limits.max_fragments.into();
    let send = most(limits.send_queue(u32::MAX, fragments, 0).err().map(|exceeded| exceeded.limit));
    let receive = most(limits.receive_queue(u32::MAX, fragments).err().map(|exceeded| exceeded.limit));
    cut(&mut device.max_qp_wr, send.min(receive));
    cut(&mut device.max_sge, limits.max_fragments.into());
    cut(&mut device.max_sge_rd, limits.max_read_fragments.into());
    cut(&mut device.max_cqe, limits.max_completion_entries().into());
    if limits.features.contains(Features::SHARED_RECEIVE) {
        let shared = limits.shared_receive_queue(u32::MAX, fragments);
        cut(&mut device.max_srq_wr, most(shared.err().map(|exceeded| exceeded.limit)));
        cut(&mut device.max_srq_sge, limits.max_fragments.into());
    } else {
        (device.max_srq, device.max_srq_wr, device.max_srq_sge) = (0, 0, 0);
    }
}

unsafe extern "C" fn query_port(
    context: *mut ibv_context,
    port: u8,
    attributes: *mut ibv_port_attr,
) -> c_int {
    // SAFETY: libibverbs calls with an open context of ours and room for what it knows of a port.
    unsafe { boundary::status(context, "query_port", || command::query_port(context, port, attributes)) }
}

unsafe extern "C" fn query_qp(
    qp: *mut ibv_qp,
    attributes: *mut ibv_qp_attr,
    mask: c_int,
    created: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: libibverbs calls with a QP of ours and the program's structs.
    unsafe {
        boundary::status((*qp).context, "query_qp", || {
            command::query_qp(qp, attributes, mask, created)?;
            if mask as u32 & IBV_QP_STATE != 0 && (*attributes).qp_state == IBV_QPS_ERR {
                QueuePair::of(qp).set_in_error();
            }
            Ok(())
        })
    }
}

/// Fills the operations of this file.
pub fn install(operations: &mut verbs_context_ops) {
    operations.query_device_ex = Some(query_device_ex);
    operations.query_port = Some(query_port);
    operations.query_qp = Some(query_qp);
}

#[cfg(test)]
mod tests {
    use super::*;
    use irdma_hw::limits::HardwareGeneration;

    const E810: DeviceLimits = DeviceLimits {
        generation: HardwareGeneration::Gen2,
        features: Features::CQ_RESIZE,
        abi_version: 5,
        max_fragments: 13,
        max_read_fragments: 13,
        max_inline: 101,
        send_chunk: 8,
        max_send_quanta: 32768,
        max_receive_quanta: 32768,
        max_shared_quanta: 0,
        min_work_queue: 8,
        max_completion_slots: 1_048_575,
    };

    #[test]
    fn what_is_reported_can_be_created() {
        let mut device = ibv_device_attr {
            max_qp_wr: c_int::MAX,
            max_sge: 100,
            max_sge_rd: 100,
            max_cqe: 1_048_574,
            max_srq: 7,
            ..ibv_device_attr::default()
        };
        cut_to_what_can_be_created(&mut device, &E810);
        let created = |value: c_int| value as u32;
        assert!(E810.send_queue(created(device.max_qp_wr), created(device.max_sge), 0).is_ok());
        assert!(E810.receive_queue(created(device.max_qp_wr), created(device.max_sge)).is_ok());
        assert!(E810.completion_queue(created(device.max_cqe)).is_ok());
        assert_eq!((device.max_qp_wr, device.max_cqe, device.max_srq), (4063, 524_286, 0));
    }

    #[test]
    fn smaller_numbers_of_the_kernel_stay() {
        let mut device = ibv_device_attr { max_qp_wr: 100, max_cqe: 50, ..ibv_device_attr::default() };
        cut_to_what_can_be_created(&mut device, &E810);
        assert_eq!((device.max_qp_wr, device.max_cqe), (100, 50));
    }

    #[test]
    fn firmware_version_is_a_c_string() {
        let mut text = [1; 8];
        write_firmware_version(&mut text, 0x0001_0007_0000_0042);
        assert_eq!(text, [b'7', b'.', b'6', b'6', 0, 0, 0, 0].map(|byte| byte as c_char));
        let mut short = [1; 4];
        write_firmware_version(&mut short, u64::MAX);
        assert_eq!(short, [b'6', b'5', b'5', 0].map(|byte| byte as c_char));
    }
}
