//! The mailbox: two rings of descriptors by which driver and device exchange messages.
//!
//! Format: kernel, drivers/net/ethernet/intel/idpf/idpf_controlq_api.h and
//! `struct idpf_ctlq_desc`.

use irdma_engine::spec::FunctionId;
use irdma_engine::{Engine, MemoryFault};

use super::Idpf;
use crate::field::{put_at, u16_at, u32_at};
use crate::function::Function;
use crate::host::Host;

/// Bytes of a descriptor.
const DESCRIPTOR: usize = 32;
/// Bytes of a message at most (the driver's buffers).
pub const MOST_BYTES: usize = 4096;
/// Bits of the length register that are a length, of both rings.
const LENGTH: u32 = 0x1fff;
/// Answers that wait for room in the receive ring at most; a driver that leaves so many is gone.
const MOST_WAITING: usize = 256;

const DONE: u16 = 1;
const BUFFER: u16 = 1 << 12;
const SENT_BY_PEER: u16 = 0x0804;
const OPCODE: u32 = 0x0fff_ffff;
/// The interrupt vector of the mailbox.
const VECTOR: u32 = 0;

/// One of the two rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ring {
    /// From the device to the driver.
    Receive,
    /// From the driver to the device.
    Send,
}

/// Registers of a ring, in their order: base low, base high, length, head, tail.
#[derive(Debug, Default)]
struct Registers([u32; 5]);

impl Registers {
    fn entries(&self) -> u32 {
        self.0[2] & LENGTH
    }

    fn head(&self) -> u32 {
        self.0[3]
    }

    fn tail(&self) -> u32 {
        self.0[4]
    }

    /// Address of the descriptor at the head; `None` for a ring that is not set up, or not well.
    fn descriptor(&self) -> Option<u64> {
        if self.head() >= self.entries() || self.tail() >= self.entries() {
            return None;
        }
        let base = u64::from(self.0[1]) << 32 | u64::from(self.0[0]);
        base.checked_add(u64::from(self.head()) * DESCRIPTOR as u64)
    }

    fn advance(&mut self) {
        self.0[3] = (self.head() + 1) % self.entries().max(1);
    }
}

/// A message to or from the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// What it is about.
    pub opcode: u32,
    /// 0, or why a request was refused.
    pub status: u32,
    /// Names the request; 0 for what was not asked for.
    pub cookie: u16,
    /// Its content.
    pub body: Vec<u8>,
}

/// The two rings, and what waits to be put into the second.
#[derive(Debug, Default)]
pub struct Mailbox {
    send: Registers,
    receive: Registers,
    waiting: Vec<Message>,
}

impl Mailbox {
    fn ring(&mut self, ring: Ring) -> &mut Registers {
        match ring {
            Ring::Send => &mut self.send,
            Ring::Receive => &mut self.receive,
        }
    }

    /// A load of a register, by its byte offset.
    pub fn read(&self, ring: Ring, offset: u64) -> u32 {
        let registers = if ring == Ring::Send { &self.send } else { &self.receive };
        registers.0.get(offset as usize / 4).copied().unwrap_or(0)
    }

    /// A store to a register.
    pub fn write(&mut self, ring: Ring, offset: u64, value: u32) {
        if let Some(register) = self.ring(ring).0.get_mut(offset as usize / 4) {
            *register = value;
        }
    }

    /// The next message of the driver, taken off its ring.
    fn take(&mut self, host: &Host, function: FunctionId) -> Option<Message> {
        if self.send.head() == self.send.tail() {
            return None;
        }
        let place = self.send.descriptor()?;
        let mut descriptor = [0; DESCRIPTOR];
        host.read_at(function, place, &mut descriptor).ok()?;
        let mut body = vec![0; usize::from(u16_at(&descriptor, 4)).min(MOST_BYTES)];
        if host.read_at(function, buffer_of(&descriptor), &mut body).is_err() {
            body.clear();
        }
        let message = Message {
            opcode: u32_at(&descriptor, 8) & OPCODE,
            status: 0,
            cookie: u16_at(&descriptor, 20),
            body,
        };
        let flags = u16_at(&descriptor, 0) | DONE;
        put_at(&mut descriptor, 6, 0_u16.to_le_bytes());
        host.write_at(function, place + 6, &descriptor[6..8]).ok()?;
        host.write_at(function, place, &flags.to_le_bytes()).ok()?;
        self.send.advance();
        Some(message)
    }

    /// Queues a message for the driver.
    pub fn post(&mut self, message: Message) {
        if self.waiting.len() < MOST_WAITING {
            self.waiting.push(message);
        }
    }

    /// Puts what waits into the receive ring, as far as there is room; whether there was any.
    fn deliver(&mut self, host: &Host, function: FunctionId) -> bool {
        let mut delivered = 0;
        for message in &self.waiting {
            // The tail is the last descriptor that is the device's.
            let Some(place) = self.receive.descriptor() else { break };
            if self.receive.head() == self.receive.tail() {
                break;
            }
            if put(host, function, place, message).is_err() {
                break;
            }
            self.receive.advance();
            delivered += 1;
        }
        self.waiting.drain(..delivered);
        delivered > 0
    }
}

/// The address of a descriptor's buffer.
fn buffer_of(descriptor: &[u8; DESCRIPTOR]) -> u64 {
    u64::from(u32_at(descriptor, 24)) << 32 | u64::from(u32_at(descriptor, 28))
}

fn put(host: &Host, function: FunctionId, place: u64, message: &Message) -> Result<(), MemoryFault> {
    let mut descriptor = [0; DESCRIPTOR];
    host.read_at(function, place, &mut descriptor)?;
    host.write_at(function, buffer_of(&descriptor), &message.body)?;
    put_at(&mut descriptor, 2, SENT_BY_PEER.to_le_bytes());
    put_at(&mut descriptor, 4, (message.body.len() as u16).to_le_bytes());
    put_at(&mut descriptor, 6, 0_u16.to_le_bytes());
    put_at(&mut descriptor, 8, message.opcode.to_le_bytes());
    put_at(&mut descriptor, 12, message.status.to_le_bytes());
    put_at(&mut descriptor, 20, message.cookie.to_le_bytes());
    host.write_at(function, place + 2, &descriptor[2..])?;
    // The driver looks at the flags first.
    host.write_at(function, place, &(DONE | BUFFER).to_le_bytes())
}

impl Idpf {
    /// Answers what the driver has sent, and delivers what waits for it.
    pub fn serve(&mut self, function: &mut Function, engine: &mut Engine<Host>) {
        // A ring's worth at a time, whatever the registers say.
        for _ in 0..=LENGTH {
            let Some(request) = self.mailbox.take(engine.platform(), function.id) else { break };
            self.answer(function, engine, &request);
        }
        if self.mailbox.deliver(engine.platform(), function.id) {
            function.interrupts.raise(VECTOR);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::tests::host;

    const SEND_RING: u32 = 0x1000;
    const RECEIVE_RING: u32 = 0x2000;

    fn mailbox() -> (Mailbox, Host) {
        let mut mailbox = Mailbox::default();
        for (ring, base) in [(Ring::Send, SEND_RING), (Ring::Receive, RECEIVE_RING)] {
            mailbox.write(ring, 0, base);
            mailbox.write(ring, 8, 4 | 1 << 31);
        }
        mailbox.write(Ring::Receive, 16, 3);
        let host = host(0x1_0000);
        for index in 0..4_u64 {
            let mut descriptor = [0; DESCRIPTOR];
            put_at(&mut descriptor, 28, (0x8000 + index as u32 * 0x1000).to_le_bytes());
            host.write_at(0, u64::from(RECEIVE_RING) + index * 32, &descriptor).expect("mapped");
        }
        (mailbox, host)
    }

    #[test]
    fn a_request_is_taken_and_marked() {
        let (mut mailbox, host) = mailbox();
        let mut descriptor = [0; DESCRIPTOR];
        put_at(&mut descriptor, 0, 0x1400_u16.to_le_bytes());
        put_at(&mut descriptor, 4, 3_u16.to_le_bytes());
        put_at(&mut descriptor, 8, (529_u32 | 0xf000_0000).to_le_bytes());
        put_at(&mut descriptor, 20, 0x1234_u16.to_le_bytes());
        put_at(&mut descriptor, 28, 0x4000_u32.to_le_bytes());
        host.write_at(0, SEND_RING.into(), &descriptor).expect("mapped");
        host.write_at(0, 0x4000, &[1, 2, 3]).expect("mapped");
        assert_eq!(mailbox.take(&host, 0), None, "nothing before the tail moves");
        mailbox.write(Ring::Send, 16, 1);
        let request = mailbox.take(&host, 0).expect("a request");
        assert_eq!(request, Message { opcode: 529, status: 0, cookie: 0x1234, body: vec![1, 2, 3] });
        assert_eq!(mailbox.read(Ring::Send, 12), 1);
        let mut flags = [0; 2];
        host.read_at(0, SEND_RING.into(), &mut flags).expect("mapped");
        assert_eq!(u16::from_le_bytes(flags), 0x1401);
        assert_eq!(mailbox.take(&host, 0), None);
    }

    #[test]
    fn answers_wait_for_room() {
        let (mut mailbox, host) = mailbox();
        for cookie in 1..=5 {
            mailbox.post(Message { opcode: 7, status: 0, cookie, body: vec![cookie as u8; 8] });
        }
        assert!(mailbox.deliver(&host, 0));
        assert_eq!(mailbox.waiting.len(), 2, "one descriptor stays the driver's");
        let mut descriptor = [0; DESCRIPTOR];
        host.read_at(0, u64::from(RECEIVE_RING) + 64, &mut descriptor).expect("mapped");
        assert_eq!(u16_at(&descriptor, 0), DONE | BUFFER);
        assert_eq!((u16_at(&descriptor, 4), u32_at(&descriptor, 8), u16_at(&descriptor, 20)), (8, 7, 3));
        let mut body = [0; 8];
        host.read_at(0, 0xa000, &mut body).expect("mapped");
        assert_eq!(body, [3; 8]);
        assert!(!mailbox.deliver(&host, 0));
        mailbox.write(Ring::Receive, 16, 1);
        assert!(mailbox.deliver(&host, 0));
        assert_eq!(mailbox.waiting, []);
    }

    #[test]
    fn rings_that_are_no_rings_are_left_alone() {
        let (mut mailbox, host) = mailbox();
        for (offset, value) in [(8, 0), (12, 9), (4, u32::MAX), (16, u32::MAX)] {
            let (mut other, _) = self::mailbox();
            other.write(Ring::Send, 16, 1);
            other.write(Ring::Send, offset, value);
            other.write(Ring::Receive, offset, value);
            assert_eq!(other.take(&host, 0), None);
            other.post(Message { opcode: 7, status: 0, cookie: 1, body: vec![] });
            assert!(!other.deliver(&host, 0));
        }
        for _ in 0..2 * MOST_WAITING {
            mailbox.post(Message { opcode: 7, status: 0, cookie: 1, body: vec![] });
        }
        assert_eq!(mailbox.waiting.len(), MOST_WAITING);
    }
}
