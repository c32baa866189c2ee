//! What the idpf driver drives: registers, mailbox, messages (GEN3).
//!
//! Register offsets: kernel, drivers/net/ethernet/intel/idpf/idpf_lan_pf_regs.h. Where the
//! RDMA block's registers are the device tells the driver itself (`channel`).

pub mod channel;
pub mod mailbox;
pub mod messages;
mod receive;
mod transmit;
pub mod vport;

use irdma_engine::Engine;

use crate::function::Function;
use crate::host::Host;
use crate::register::Register;
use mailbox::{Mailbox, Ring};
use vport::Vport;

/// Bytes of the register BAR.
pub const BAR_BYTES: u64 = 0x1000_0000;

/// Offsets of registers.
pub mod offset {
    /// Mailbox, receive half: base low and high, length, head, tail.
    pub const RECEIVE: u64 = 0x840_0000;
    /// Mailbox, send half.
    pub const SEND: u64 = 0x840_0014;
    /// Bytes of a half.
    pub const HALF: u64 = 0x14;
    /// Reset status.
    pub const RESET_STATUS: u64 = 0x840_7008;
    /// Reset request.
    pub const RESET: u64 = 0x840_700c;
    /// Interrupt control, one page per vector.
    pub const INTERRUPTS: u64 = 0x890_0000;
    /// Distance between interrupt controls.
    pub const INTERRUPT_STEP: u64 = 0x1000;
    /// Registers of the RDMA block.
    pub const RDMA: u64 = 0xbc0_0000;
    /// The page of doorbells that programs map.
    pub const DOORBELLS: u64 = 0xbc0_1000;
    /// Arming doorbell in that page.
    pub const ARM: u64 = DOORBELLS + 64;
}

/// Registers of the RDMA block, in order, by words.
pub const RDMA_REGISTERS: [Register; 8] = [
    Register::ControlTail,
    Register::ControlDoorbell,
    Register::ControlStatus,
    Register::ControlHigh,
    Register::ControlLow,
    Register::ControlErrors,
    Register::EventsTaken,
    Register::Acknowledge,
];

/// A reset is finished.
const RESET_DONE: u32 = 1;
/// A reset is asked for.
const RESET_REQUEST: u32 = 1;

/// The state of the driver's side.
#[derive(Debug, Default)]
pub struct Idpf {
    /// The mailbox.
    pub mailbox: Mailbox,
    /// The network port.
    pub vport: Vport,
}

fn rdma_register(place: u64) -> Option<Register> {
    match place {
        offset::DOORBELLS => Some(Register::Send),
        offset::ARM => Some(Register::Arm),
        _ => {
            let words = place.checked_sub(offset::RDMA)? / 4;
            RDMA_REGISTERS.get(usize::try_from(words).ok()?).copied()
        }
    }
}

fn ring_register(place: u64) -> Option<(Ring, u64)> {
    let within = |start: u64| place.checked_sub(start).filter(|&offset| offset < offset::HALF);
    within(offset::RECEIVE)
        .map(|word| (Ring::Receive, word))
        .or_else(|| within(offset::SEND).map(|word| (Ring::Send, word)))
}

impl Idpf {
    /// A load of the word at `place`.
    pub fn read(&self, function: &Function, place: u64) -> u32 {
        if let Some((ring, word)) = ring_register(place) {
            return self.mailbox.read(ring, word);
        }
        match (place, rdma_register(place)) {
            (offset::RESET_STATUS, _) => RESET_DONE,
            (_, Some(register)) => function.read_register(register),
            _ => 0,
        }
    }

    /// A store of the word at `place`.
    pub fn write(&mut self, function: &mut Function, engine: &mut Engine<Host>, place: u64, value: u32) {
        if let Some((ring, word)) = ring_register(place) {
            self.mailbox.write(ring, word, value);
            self.serve(function, engine);
        } else if place == offset::RESET && value & RESET_REQUEST != 0 {
            self.reset(function, engine);
        } else if let Some(register) = rdma_register(place) {
            function.write_register(engine, register, value);
        } else {
            self.vport.write(function, engine, place, value);
        }
    }

    /// Forgets everything, as after power-up.
    pub fn reset(&mut self, function: &mut Function, engine: &mut Engine<Host>) {
        *self = Self::default();
        function.forget_objects(engine);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_are_where_the_driver_is_told() {
        assert_eq!(rdma_register(offset::DOORBELLS), Some(Register::Send));
        assert_eq!(rdma_register(offset::RDMA + 4), Some(Register::ControlDoorbell));
        assert_eq!(rdma_register(offset::RDMA + 4 * 8), None);
        assert_eq!(rdma_register(u64::MAX), None);
        assert_eq!(ring_register(0x840_0010), Some((Ring::Receive, 16)));
        assert_eq!(ring_register(0x840_0024), Some((Ring::Send, 16)));
        assert_eq!(ring_register(0x840_0028), None);
    }
}
