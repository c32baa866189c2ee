//! The device as a whole: its configuration, its functions, its objects.

use std::collections::{BTreeMap, BTreeSet};

use crate::counters::Counters;
use crate::cq::Cq;
use crate::mr::Protected;
use crate::platform::Platform;
use crate::qp::Qp;
use crate::random::Random;
use crate::spec::{AddressHandle, DeviceConfig, EngineError, FunctionId, Generation, Gid, Mac, PdId, QpId};
use crate::srq::Srq;
use crate::table::Table;
use crate::timer::Timers;

/// Bytes moved at a time between two memories.
const BUFFER_BYTES: usize = 128 * 1024;

/// Where bytes rest on their way between two memories. It starts on a page: copying from the
/// start of a page to a few bytes behind the start of another is several times slower
/// (loads wait for stores to addresses that look alike in their low 12 bits).
#[derive(Debug)]
#[repr(align(4096))]
pub(crate) struct Buffer(pub(crate) [u8; BUFFER_BYTES]);

/// A NIC function: a port on the fabric.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) gids: Vec<Gid>,
    pub(crate) mac: Option<Mac>,
    pub(crate) counters: Counters,
}

/// The device. Everything happens within a call: there are no threads, and what must
/// wait (a receiver not ready, a peer that does not answer) waits for
/// [`Engine::advance`], when [`Engine::next_deadline`] says so.
///
/// A number that a call does not know is refused ([`EngineError::NotFound`]), or, where
/// it comes out of a doorbell, ignored. Whatever is found in a ring or in any other memory of a
/// program may stop that program's queues, and nothing else.
#[derive(Debug)]
pub struct Engine<P: Platform> {
    pub(crate) platform: P,
    pub(crate) config: DeviceConfig,
    pub(crate) random: Random,
    pub(crate) functions: Vec<Function>,
    pub(crate) pds: Table<()>,
    pub(crate) protected: Table<Protected<P::Backing>>,
    pub(crate) cqs: Table<Cq<P::Backing>>,
    pub(crate) srqs: Table<Srq<P::Backing>>,
    pub(crate) qps: Table<Qp<P::Backing>>,
    pub(crate) address_handles: Table<AddressHandle>,
    pub(crate) multicast: BTreeMap<Gid, BTreeSet<QpId>>,
    pub(crate) timers: Timers,
    pub(crate) buffer: Box<Buffer>,
}

impl<P: Platform> Engine<P> {
    /// A device without functions or objects.
    pub fn new(config: DeviceConfig, platform: P) -> Self {
        let mut random = Random::new(config.seed);
        // What the formats hold: 18-bit QP numbers and 17-bit address handles (what user
        // space can be trusted to carry) before GEN3, 24 bits after. Numbers 0 and 1 are
        // the management queue pairs'.
        let wide = config.generation >= Generation::Gen3;
        let qps = if wide { 2..=0xff_fffe } else { 2..=0x3_ffff };
        let handles = if wide { 1..=0xff_ffff } else { 1..=0x1_ffff };
        let first_handle = if wide { 0x2_0000 } else { 1 };
        Self {
            functions: Vec::new(),
            pds: Table::new(1..=0xffff, 1),
            protected: Table::new(1..=0xff_ffff, (random.next() & 0xff_ffff) as u32),
            cqs: Table::new(1..=0x7_ffff, 1),
            srqs: Table::new(1..=0xffff, 1),
            qps: Table::new(qps, 2 + (random.next() & 0xfff) as u32),
            address_handles: Table::new(handles, first_handle),
            multicast: BTreeMap::new(),
            timers: Timers::default(),
            buffer: Box::new(Buffer([0; BUFFER_BYTES])),
            random,
            platform,
            config,
        }
    }

    /// Who runs the device.
    pub fn platform(&mut self) -> &mut P {
        &mut self.platform
    }

    /// What the device is.
    pub fn config(&self) -> &DeviceConfig {
        &self.config
    }

    /// Adds a function that answers to `gids` on the fabric.
    pub fn add_function(&mut self, gids: Vec<Gid>) -> FunctionId {
        self.functions.push(Function { gids, mac: None, counters: Counters::default() });
        (self.functions.len() - 1) as FunctionId
    }

    /// Changes the GIDs that a function answers to; an unknown function is ignored.
    pub fn set_gids(&mut self, function: FunctionId, gids: Vec<Gid>) {
        if let Some(function) = self.functions.get_mut(function as usize) {
            function.gids = gids;
        }
    }

    /// Gives a function its Ethernet address; an unknown function is ignored.
    pub fn set_mac(&mut self, function: FunctionId, mac: Mac) {
        if let Some(function) = self.functions.get_mut(function as usize) {
            function.mac = Some(mac);
        }
    }

    /// The function that packets with this destination reach.
    pub(crate) fn route(&self, mac: Option<Mac>, gid: &Gid) -> Option<FunctionId> {
        self.functions
            .iter()
            .position(|function| match mac {
                Some(_) => function.mac == mac,
                None => function.gids.contains(gid),
            })
            .map(|index| index as FunctionId)
    }

    /// Takes away everything of a function, used or not: the function is reset.
    pub fn reset_function(&mut self, function: FunctionId) {
        let mut last = None;
        while let Some(qp) = self.qps.next_after(last) {
            if qp.function == function {
                self.stop_waiting(qp);
            }
            last = Some(qp);
        }
        self.qps.clear(function);
        self.srqs.clear(function);
        self.cqs.clear(function);
        self.protected.clear(function);
        self.address_handles.clear(function);
        self.pds.clear(function);
        self.count(function, |counters| *counters = Counters::default());
        self.multicast.retain(|_, members| {
            members.retain(|member| member.function != function);
            !members.is_empty()
        });
    }

    /// Creates a protection domain.
    ///
    /// # Errors
    /// Unknown function; the number is taken, or none is left.
    pub fn create_pd(&mut self, function: FunctionId, number: Option<u32>) -> Result<PdId, EngineError> {
        self.check_function(function)?;
        self.pds.insert(function, number, ())
    }

    /// Refuses a function that there is not.
    pub(crate) fn check_function(&self, function: FunctionId) -> Result<(), EngineError> {
        let known = self.functions.get(function as usize).is_some();
        if known { Ok(()) } else { Err(EngineError::NotFound) }
    }

    /// Takes a protection domain away.
    ///
    /// # Errors
    /// Unknown domain; anything still belongs to it.
    pub fn destroy_pd(&mut self, pd: PdId) -> Result<(), EngineError> {
        if !self.pds.contains(pd) {
            return Err(EngineError::NotFound);
        }
        let used = self.protected.values().any(|entry| match entry {
            Protected::Region(region) => region.memory.pd == pd,
            Protected::Window(window) => window.pd == pd,
        }) || self.qps.values().any(|qp| qp.pd == pd)
            || self.srqs.values().any(|srq| srq.pd == pd)
            || self.address_handles.values().any(|handle| handle.pd == pd);
        if used {
            return Err(EngineError::Busy);
        }
        self.pds.remove(pd);
        Ok(())
    }

    /// Looks at every send queue's valid bits and every completion queue's arm word, for
    /// when doorbells are not delivered one by one. True if anything moved.
    pub fn scan(&mut self) -> bool {
        let mut moved = false;
        let mut last = None;
        while let Some(cq) = self.cqs.next_after(last) {
            self.arm_cq(cq);
            last = Some(cq);
        }
        last = None;
        while let Some(qp) = self.qps.next_after(last) {
            moved |= self.run_send_queue(qp);
            last = Some(qp);
        }
        moved
    }
}
