//! Queue pairs as the connection manager moves them: only iWARP's, which the kernel connects itself
//! (kernel: `irdma_connect`, `irdma_accept`, `irdma_cm_disconn_true`).

use irdma_engine::spec::{QpChange, QpId, QpState};

use crate::asynchronous::{FLUSH_GENERAL, move_to_error};
use crate::commands::qp_modify::{connection_wqes, granted};
use crate::device::Device;
use crate::errno::{EINVAL, Result};
use crate::file::OpenFile;
use crate::object::{IbState, Kind, Qp};
use crate::profile::Transport;

/// One end of a connection in the making.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionEnd {
    /// Its queue pair.
    pub qp: u32,
    /// Reads that it may have outstanding; more than the card can have are fewer.
    pub reads_out: u32,
    /// Reads that it answers at a time.
    pub reads_in: u32,
}

impl Qp {
    /// Its connection is over; whoever made it will be told.
    pub(crate) fn lose_connection(&mut self, lost: &mut Vec<QpId>) {
        if core::mem::take(&mut self.connected) {
            lost.push(self.id);
        }
    }
}

impl Device {
    /// Whether there is a queue pair of that number.
    pub fn has_qp(&self, number: u32) -> bool {
        self.hardware.qps.contains_key(&self.hardware.id(number))
    }

    /// Connects two queue pairs and makes both ready to send.
    ///
    /// # Errors
    /// `EINVAL` if one of them is not there, was connected before, or is in error, and for other
    /// ports than iWARP; `EOVERFLOW` if a completion queue has no place for what the kernel itself
    /// sends. Nothing is connected then.
    pub fn connect_qps(&mut self, active: ConnectionEnd, passive: ConnectionEnd) -> Result<()> {
        let unconnected = |end: &ConnectionEnd| {
            let state = self.qp(end.qp).map(|qp| qp.hardware);
            matches!(state, Some(QpState::Reset | QpState::Init | QpState::ReadyToReceive))
        };
        if self.hardware.profile.transport != Transport::Iwarp
            || active.qp == passive.qp
            || !unconnected(&active)
            || !unconnected(&passive)
        {
            return Err(EINVAL);
        }
        // Both know each other before either sends what was posted before.
        let known = self.introduce(active, passive.qp).and_then(|()| self.introduce(passive, active.qp));
        let ready = known.and_then(|()| self.start(active.qp)).and_then(|()| self.start(passive.qp));
        if ready.is_err() {
            self.disconnect_qp(active.qp);
            self.disconnect_qp(passive.qp);
        }
        self.settle();
        ready
    }

    /// Ends the connection of a queue pair, if it has one: what is outstanding is flushed.
    pub fn disconnect_qp(&mut self, number: u32) {
        let Some(&(token, handle)) = self.hardware.qps.get(&self.hardware.id(number)) else { return };
        let Some(file) = self.files.get_mut(&token) else { return };
        let Some(qp) = file.objects.get_mut(handle).and_then(Qp::of_mut) else { return };
        if core::mem::take(&mut qp.connected) {
            // The device has the queue pair; it cannot refuse.
            let _ = move_to_error(&mut self.hardware, qp, FLUSH_GENERAL, FLUSH_GENERAL);
            qp.state = IbState::Error;
        }
        self.settle();
    }

    /// Queue pairs whose connections have ended since the last call, by whatever but [`Device::disconnect_qp`].
    pub fn take_lost_connections(&mut self) -> Vec<u32> {
        core::mem::take(&mut self.hardware.lost).into_iter().map(|id| id.number).collect()
    }

    fn qp(&self, number: u32) -> Option<&Qp> {
        let &(token, handle) = self.hardware.qps.get(&self.hardware.id(number))?;
        Qp::of(self.files.get(&token)?.objects.get(handle)?)
    }

    /// Tells a queue pair what it is going to be connected to.
    fn introduce(&mut self, end: ConnectionEnd, peer: u32) -> Result<()> {
        let limits = self.hardware.profile.limits();
        let gid = self.hardware.gid(0)?;
        let change = QpChange {
            state: Some(QpState::ReadyToReceive),
            access: Some(granted(&self.hardware.profile, false)),
            destination_gid: Some(gid),
            source_gid: Some(gid),
            destination_qp: Some(peer),
            // A stream that begins with a read of nothing takes one (kernel: `irdma_record_ird_ord`).
            max_rd_atomic: Some(end.reads_out.clamp(1, limits.outbound_reads)),
            max_dest_rd_atomic: Some(end.reads_in.clamp(1, limits.inbound_reads)),
            ..QpChange::default()
        };
        let qp = self.hardware.id(end.qp);
        self.hardware.engine.modify_qp(qp, &change)?;
        let count = connection_wqes(&self.hardware.profile);
        self.with_qp(end.qp, |qp| qp.connected = true);
        self.hardware.engine.pass_connection_wqes(qp, count)?;
        Ok(())
    }

    /// Lets a queue pair send.
    fn start(&mut self, number: u32) -> Result<()> {
        let change = QpChange { state: Some(QpState::ReadyToSend), ..QpChange::default() };
        let qp = self.hardware.id(number);
        self.hardware.engine.modify_qp(qp, &change)?;
        self.with_qp(number, |qp| {
            qp.hardware = QpState::ReadyToSend;
            qp.state = IbState::ReadyToSend;
        });
        Ok(())
    }

    fn with_qp(&mut self, number: u32, change: impl FnOnce(&mut Qp)) {
        let Some(&(token, handle)) = self.hardware.qps.get(&self.hardware.id(number)) else { return };
        let file: Option<&mut OpenFile> = self.files.get_mut(&token);
        if let Some(qp) = file.and_then(|file| file.objects.get_mut(handle)).and_then(Qp::of_mut) {
            change(qp);
        }
    }
}
