//! What an ice driver hands on to the RDMA driver: the registers of an E810 (GEN2).
//!
//! Offsets: kernel, drivers/infiniband/hw/irdma/icrdma_hw.h.

use irdma_engine::Engine;
use irdma_engine::spec::Mac;

use crate::function::Function;
use crate::host::Host;
use crate::register::Register;

/// Bytes of the register BAR.
pub const BAR_BYTES: u64 = 8 << 20;

/// The page of doorbells that programs map, and the arming doorbell in it.
const DOORBELLS: u64 = 0x7f_0000;
const ARM: u64 = DOORBELLS + 64;
/// Size of the doorbell region, and its code for 8 MiB.
const BAR_CONTROL: u64 = 0x9_de74;
const BAR_CONTROL_VALUE: u32 = 0x10;
/// Status of the three processors of the RDMA block, and what they say when they are up.
const PROCESSORS: [u64; 3] = [0x50_ba5c, 0x50_ba60, 0x50_ba64];
const PROCESSOR_UP: u32 = 0x80;
/// Interrupt causes of completion event queues, and of the asynchronous event queue.
const EVENT_CAUSES: u64 = 0x15_c000;
const EVENT_QUEUES: u64 = 512;
const ASYNCHRONOUS_CAUSE: u64 = 0x16_cb00;
const CAUSE_ENABLED: u32 = 1 << 30;
const CAUSE_VECTOR: u32 = 0x7ff;
/// The Ethernet address: first four bytes, last two. Not a register of the E810; the stand-in
/// for its driver asks for it here.
const ADDRESS_LOW: u64 = 0x7e_0000;
const ADDRESS_HIGH: u64 = 0x7e_0004;

fn rdma_register(place: u64) -> Option<Register> {
    Some(match place {
        0x50_0880 => Register::ControlTail,
        0x50_0800 => Register::ControlDoorbell,
        0x50_a000 => Register::ControlStatus,
        0x50_a100 => Register::ControlHigh,
        0x50_a080 => Register::ControlLow,
        0x50_a200 => Register::ControlErrors,
        0x50_2c00 | ARM => Register::Arm,
        0x50_2c80 => Register::Acknowledge,
        0x50_2d00 => Register::EventsTaken,
        0x50_4400 | DOORBELLS => Register::Send,
        _ => return None,
    })
}

fn address_words(mac: Mac) -> [u32; 2] {
    let [a, b, c, d, e, f] = mac;
    [u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, 0, 0])]
}

/// A load of the word at `place`.
pub fn read(function: &Function, place: u64) -> u32 {
    match place {
        BAR_CONTROL => BAR_CONTROL_VALUE,
        ADDRESS_LOW => address_words(function.mac)[0],
        ADDRESS_HIGH => address_words(function.mac)[1],
        _ if PROCESSORS.contains(&place) => PROCESSOR_UP,
        _ => rdma_register(place).map_or(0, |register| function.read_register(register)),
    }
}

/// A store of the word at `place`.
pub fn write(function: &mut Function, engine: &mut Engine<Host>, place: u64, value: u32) {
    if let Some(register) = rdma_register(place) {
        function.write_register(engine, register, value);
        return;
    }
    let vector = (value & CAUSE_ENABLED != 0).then_some(value & CAUSE_VECTOR);
    if place == ASYNCHRONOUS_CAUSE {
        function.asynchronous_vector = vector;
        return;
    }
    let Some(queue) = place.checked_sub(EVENT_CAUSES).filter(|offset| offset % 4 == 0) else { return };
    if queue / 4 < EVENT_QUEUES {
        let queue = (queue / 4) as u32;
        match vector {
            Some(vector) => drop(function.event_vectors.insert(queue, vector)),
            None => drop(function.event_vectors.remove(&queue)),
        }
    }
}

#[cfg(test)]
mod tests {
    use irdma_engine::spec::{DeviceConfig, Generation};

    use super::*;

    #[test]
    fn interrupt_causes_name_vectors() {
        let config = DeviceConfig { generation: Generation::Gen2, port_mtu: 1024, seed: 1 };
        let mut engine = Engine::new(config, Host::new(1));
        let id = engine.add_function(Vec::new());
        let mut function = Function::new(id, Generation::Gen2, [2, 0, 0, 0, 0, 9]);
        write(&mut function, &mut engine, EVENT_CAUSES + 4, CAUSE_ENABLED | 7);
        write(&mut function, &mut engine, ASYNCHRONOUS_CAUSE, CAUSE_ENABLED | 3);
        assert_eq!(function.event_vectors.get(&1), Some(&7));
        assert_eq!(function.asynchronous_vector, Some(3));
        write(&mut function, &mut engine, EVENT_CAUSES + 4, 7);
        assert_eq!(function.event_vectors.get(&1), None);
        write(&mut function, &mut engine, EVENT_CAUSES + 4 * EVENT_QUEUES, CAUSE_ENABLED);
        assert!(function.event_vectors.is_empty());
        assert_eq!(read(&function, ADDRESS_LOW), 2);
        assert_eq!(read(&function, ADDRESS_HIGH), 0x0900);
        assert_eq!(read(&function, PROCESSORS[2]), PROCESSOR_UP);
    }
}
