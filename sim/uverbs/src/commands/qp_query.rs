//! Query-QP, as the driver answers it.

use irdma_engine::spec::Generation;

use crate::abi::core::{QueryQp, QueryQpResp};
use crate::abi::number::{CORE_IN, access};
use crate::answer::Answer;
use crate::call::{Call, PORT};
use crate::errno::Result;
use crate::object::{Qp, QpAttributes};
use crate::profile::{KernelVersion, Profile, Transport};

/// `IB_USER_VERBS_CMD_QUERY_QP`.
pub fn query(call: &mut Call) -> Result<Answer> {
    let wanted: QueryQp = call.request.extensible(CORE_IN)?;
    let qp: &Qp = call.file.get(wanted.qp_handle)?;
    let profile = &call.hardware.profile;
    let known = &qp.attributes;
    let mut told = QueryQpResp {
        cap: qp.cap,
        qp_access_flags: access_flags(profile, known),
        qp_state: qp.state as u8,
        cur_qp_state: qp.state as u8,
        port_num: PORT,
        // The driver does not report sq_sig_all, paths or time-outs.
        ..QueryQpResp::default()
    };
    if profile.transport == Transport::Roce {
        told.path_mtu = known.path_mtu;
        told.qkey = known.q_key;
        told.rq_psn = known.rq_psn;
        told.sq_psn = known.sq_psn;
        told.dest_qp_num = known.destination_qp;
        told.pkey_index = known.p_key;
        told.retry_cnt = known.retry_count;
        told.rnr_retry = known.rnr_retry;
        told.min_rnr_timer = known.min_rnr_timer;
        told.max_rd_atomic = known.max_rd_atomic as u8;
        told.max_dest_rd_atomic = known.max_dest_rd_atomic as u8;
    }
    let mut answer = Answer::new();
    answer.core(call.request, &told);
    Ok(answer)
}

/// The driver enables remote reads and writes on every QP and never takes that back.
fn access_flags(profile: &Profile, known: &QpAttributes) -> u32 {
    let mut flags = access::LOCAL_WRITE | access::REMOTE_WRITE | access::REMOTE_READ;
    let windows = profile.generation >= Generation::Gen3 || profile.kernel < KernelVersion::V7_2;
    if profile.transport == Transport::Roce && windows {
        flags |= access::MW_BIND;
    }
    if known.remote_atomic {
        flags |= access::REMOTE_ATOMIC;
    }
    flags
}
