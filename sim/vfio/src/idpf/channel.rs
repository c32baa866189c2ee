//! The RDMA driver's messages (irdma's virtual channel), inside of those of the mailbox.
//!
//! Formats: kernel, drivers/infiniband/hw/irdma/virtchnl.h and virtchnl.c, ig3rdma_if.c.

use irdma_engine::spec::Generation;

use super::{RDMA_REGISTERS, offset};
use crate::field::{put_at, u16_at, u32_at, u64_at};
use crate::function::Function;
use crate::register::Register;

/// Bytes in front of a request, and of an answer.
const HEADER: usize = 16;
/// The version of the channel.
const VERSION: u32 = 2;
/// Seconds that a command of the control queue may take.
const TIMEOUT_SECONDS: u16 = 10;
/// A queue that a vector is not for.
const NO_QUEUE: u16 = 0xffff;
/// Ends both lists of the register layout.
const END: u16 = 0xffff;

mod operation {
    pub const VERSION: u16 = 0;
    pub const GET_FUNCTION: u16 = 1;
    pub const PUT_FUNCTION: u16 = 2;
    pub const REGISTER_LAYOUT: u16 = 11;
    pub const CAPABILITIES: u16 = 13;
    pub const MAP_VECTORS: u16 = 14;
    pub const UNMAP_VECTORS: u16 = 15;
    pub const ADD_VPORT: u16 = 16;
    pub const DELETE_VPORT: u16 = 17;
}

/// Names of registers in the layout (kernel: `IRDMA_VCHNL_REG_ID_*`).
fn register_name(register: Register) -> u16 {
    match register {
        Register::ControlTail => 0,
        Register::ControlDoorbell => 1,
        Register::ControlStatus => 2,
        Register::ControlHigh => 3,
        Register::ControlLow => 4,
        Register::Arm => 5,
        Register::Acknowledge => 6,
        Register::EventsTaken => 7,
        Register::ControlErrors => 8,
        Register::Send => 9,
    }
}

/// The doorbell page, and interrupt control.
const DOORBELL_PAGE: u16 = 11;
const INTERRUPT_CONTROL: u16 = 12;

/// Fields whose place the device chooses: shift, bits, name (kernel:
/// `IRDMA_VCHNL_REG_FLD_ID_*`). Places are those of GEN2's fixed ones, where the control
/// queue's commands look for them.
const FIELDS: [(u8, u8, u16); 7] = [
    (31, 1, 2),  // error of a command
    (0, 1, 5),   // control queue created
    (46, 18, 6), // protection domain of a key
    (22, 10, 7), // event queue of a completion queue
    (0, 22, 8),  // completion queue
    (0, 20, 9),  // committed count
    (0, 6, 10),  // private memory's function
];

fn layout() -> Vec<u8> {
    let mut registers: Vec<(u64, u16)> = RDMA_REGISTERS
        .iter()
        .zip(0..)
        .map(|(&register, index)| (offset::RDMA + 4 * index, register_name(register)))
        .collect();
    registers.extend([
        (offset::DOORBELLS, register_name(Register::Send)),
        (offset::ARM, register_name(Register::Arm)),
        (offset::DOORBELLS, DOORBELL_PAGE),
        (offset::INTERRUPTS, INTERRUPT_CONTROL),
        (0, END),
    ]);
    let mut body = Vec::new();
    for (place, name) in registers {
        body.extend((place as u32).to_le_bytes());
        body.extend([0, 0]);
        body.extend(name.to_le_bytes());
    }
    for (shift, bits, name) in FIELDS.into_iter().chain([(0, 0, END)]) {
        body.extend([shift, bits]);
        body.extend(name.to_le_bytes());
    }
    body
}

/// Eight queue set handles, one per priority.
fn queue_sets() -> impl Iterator<Item = u8> {
    (1..=8_u16).flat_map(u16::to_le_bytes)
}

/// Connects or disconnects event queues and vectors.
fn map_vectors(function: &mut Function, parameters: &[u8], connect: bool) {
    let entries = parameters.get(4..).unwrap_or_default().chunks_exact(12);
    for entry in entries.take(u32_at(parameters, 0) as usize) {
        let (vector, queue, asynchronous) = (u32_at(entry, 0), u16_at(entry, 4), u16_at(entry, 6));
        let vector = connect.then_some(vector);
        if asynchronous != NO_QUEUE {
            function.asynchronous_vector = vector;
        }
        match vector {
            _ if queue == NO_QUEUE => {}
            Some(vector) => drop(function.event_vectors.insert(queue.into(), vector)),
            None => drop(function.event_vectors.remove(&queue.into())),
        }
    }
}

/// Answers a message; `None` to one that is no message.
pub fn answer(function: &mut Function, request: &[u8]) -> Option<Vec<u8>> {
    let parameters = request.get(HEADER..)?;
    let version = u16_at(request, 2);
    let (result, body): (i16, Vec<u8>) = match u16_at(request, 0) {
        operation::VERSION => (0, VERSION.to_le_bytes().into()),
        operation::GET_FUNCTION if version < 2 => (0, Vec::new()),
        operation::GET_FUNCTION => (0, 1_u16.to_le_bytes().into_iter().chain(queue_sets()).collect()),
        operation::CAPABILITIES => {
            let revision = if function.generation >= Generation::Gen3 { 3 } else { 2 };
            let mut body = vec![revision];
            body.extend(TIMEOUT_SECONDS.to_le_bytes());
            body.extend(TIMEOUT_SECONDS.to_le_bytes());
            body.extend(0_u16.to_le_bytes());
            (0, body)
        }
        operation::REGISTER_LAYOUT => (0, layout()),
        operation::MAP_VECTORS => {
            map_vectors(function, parameters, true);
            (0, Vec::new())
        }
        operation::UNMAP_VECTORS => {
            map_vectors(function, parameters, false);
            (0, Vec::new())
        }
        operation::ADD_VPORT => (0, queue_sets().collect()),
        operation::DELETE_VPORT | operation::PUT_FUNCTION => (0, Vec::new()),
        _ => (-(libc::EOPNOTSUPP as i16), Vec::new()),
    };
    let mut answer = vec![0; HEADER];
    put_at(&mut answer, 0, u64_at(request, 8).to_le_bytes());
    put_at(&mut answer, 8, ((HEADER + body.len()) as u16).to_le_bytes());
    put_at(&mut answer, 10, result.to_le_bytes());
    answer.extend(body);
    Some(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(function: &mut Function, operation: u16, version: u16, parameters: &[u8]) -> Vec<u8> {
        let mut request = vec![0; HEADER];
        put_at(&mut request, 0, operation.to_le_bytes());
        put_at(&mut request, 2, version.to_le_bytes());
        put_at(&mut request, 8, 0x1122_3344_5566_7788_u64.to_le_bytes());
        request.extend(parameters);
        let answer = answer(function, &request).expect("an answer");
        assert_eq!(u64_at(&answer, 0), 0x1122_3344_5566_7788);
        assert_eq!(usize::from(u16_at(&answer, 8)), answer.len());
        answer
    }

    #[test]
    fn answers_have_the_lengths_that_the_driver_wants() {
        let mut function = Function::new(0, Generation::Gen3, [2; 6]);
        assert_eq!(ask(&mut function, 0, 2, &[])[HEADER..], [2, 0, 0, 0]);
        assert_eq!(ask(&mut function, 1, 2, &[2, 0]).len(), HEADER + 18);
        assert_eq!(ask(&mut function, 13, 0, &[])[HEADER], 3);
        let unknown = ask(&mut function, 99, 0, &[]);
        assert_eq!(u16_at(&unknown, 10) as i16, -95);
        assert_eq!(answer(&mut function, &[0; 15]), None);
    }

    #[test]
    fn vectors_are_connected_and_disconnected() {
        let mut function = Function::new(0, Generation::Gen3, [2; 6]);
        let mut parameters = vec![2, 0, 0, 0];
        for (vector, queue, asynchronous) in [(3_u32, 0xffff_u16, 0_u16), (4, 1, 0xffff)] {
            parameters.extend(vector.to_le_bytes());
            parameters.extend(queue.to_le_bytes());
            parameters.extend(asynchronous.to_le_bytes());
            parameters.extend([0; 4]);
        }
        ask(&mut function, 14, 0, &parameters);
        assert_eq!(function.asynchronous_vector, Some(3));
        assert_eq!(function.event_vectors.get(&1), Some(&4));
        ask(&mut function, 15, 0, &parameters);
        assert_eq!((function.asynchronous_vector, function.event_vectors.len()), (None, 0));
    }

    #[test]
    fn the_layout_has_every_register_once() {
        let layout = layout();
        let names: Vec<u16> = layout.chunks_exact(8).map(|entry| u16_at(entry, 6)).collect();
        let end = names.iter().position(|&name| name == END).expect("an end");
        let mut known = names[..end].to_vec();
        known.sort_unstable();
        assert_eq!(known, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12]);
        assert_eq!(layout.len(), (end + 1) * 8 + (FIELDS.len() + 1) * 4);
    }
}
