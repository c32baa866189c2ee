//! The registers of the RDMA block, wherever a front has them.

use irdma_engine::Engine;

use crate::function::Function;
use crate::host::Host;

/// A register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Register {
    /// Next command that the control queue will take.
    ControlTail,
    /// Doorbell of the control queue.
    ControlDoorbell,
    /// Whether the control queue is there.
    ControlStatus,
    /// Address of the control queue's context, upper half.
    ControlHigh,
    /// Lower half, which creates the control queue.
    ControlLow,
    /// Why the last command failed.
    ControlErrors,
    /// Doorbell by which completion queues are armed.
    Arm,
    /// Completions taken; nothing is done with it.
    Acknowledge,
    /// Asynchronous events taken; nothing is done with it.
    EventsTaken,
    /// Doorbell of send queues.
    Send,
}

impl Function {
    /// What a register reads as.
    pub fn read_register(&self, register: Register) -> u32 {
        match register {
            Register::ControlTail => self.control.tail(),
            Register::ControlStatus => self.control.status(),
            Register::ControlHigh => self.control.high,
            Register::ControlErrors => self.control.error_codes(),
            Register::ControlDoorbell
            | Register::ControlLow
            | Register::Arm
            | Register::Acknowledge
            | Register::EventsTaken
            | Register::Send => 0,
        }
    }

    /// A store to a register.
    pub fn write_register(&mut self, engine: &mut Engine<Host>, register: Register, value: u32) {
        match register {
            Register::ControlHigh => self.control.high = value,
            Register::ControlLow => self.create_control(engine, value),
            Register::ControlDoorbell => self.ring_control(engine, value),
            Register::Arm => engine.arm_cq(self.object(value)),
            Register::Send => engine.ring_sq(self.object(value)),
            // The driver clears the tail before it creates the queue.
            Register::ControlTail
            | Register::ControlStatus
            | Register::ControlErrors
            | Register::Acknowledge
            | Register::EventsTaken => {}
        }
    }
}
