//! A request on its way through a handler, and what handlers share.

use irdma_engine::Engine;
use irdma_engine::spec::{CqId, DeviceConfig, FunctionId, Gid, Id, QpId, SrqId};
use std::collections::HashMap;

use crate::answer::Answer;
use crate::errno::{EINVAL, ENODATA, Result};
use crate::events::Serial;
use crate::faults::Faults;
use crate::file::{OpenFile, Token};
use crate::platform::Reports;
use crate::profile::Profile;
use crate::push::PushPages;
use crate::request::Request;

/// The one port of the device.
pub const PORT: u8 = 1;

/// Bytes per packet payload of the port (`active_mtu` 1024, for an Ethernet MTU of 1500).
pub const PORT_MTU: u32 = 1024;

/// The card, and who owns what on it.
#[derive(Debug)]
pub struct Hardware {
    /// The NIC.
    pub engine: Engine<Reports>,
    /// What it is.
    pub profile: Profile,
    /// The PCI function that programs use.
    pub function: FunctionId,
    /// Owners of the queue pairs: file and handle.
    pub qps: HashMap<QpId, (Token, u32)>,
    /// Owners of the completion queues.
    pub cqs: HashMap<CqId, (Token, u32)>,
    /// Owners of the shared receive queues.
    pub srqs: HashMap<SrqId, (Token, u32)>,
    /// Live PDs, regions and windows, address handles.
    pub counts: Counts,
    /// Members of multicast groups.
    pub groups: HashMap<Gid, u32>,
    /// Push pages.
    pub pushes: PushPages,
    /// Queue pairs whose connections ended, which the connection manager does not know yet.
    pub lost: Vec<QpId>,
    /// Errors to be made up.
    pub faults: Faults,
    /// The card has been taken out.
    pub removed: bool,
    next_serial: Serial,
}

/// How many objects there are that programs are told the rest of (`max_pd` and so on).
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Protection domains.
    pub pds: u32,
    /// Memory regions and windows.
    pub regions: u32,
    /// Address handles.
    pub address_handles: u32,
}

impl Hardware {
    /// A card of that profile.
    pub fn new(profile: Profile) -> Hardware {
        let config = DeviceConfig { generation: profile.generation, port_mtu: PORT_MTU, seed: profile.seed };
        let mut engine = Engine::new(config, Reports::new());
        let function = engine.add_function(profile.gids.clone());
        let pushes = PushPages::new(&profile);
        Hardware {
            engine,
            profile,
            function,
            qps: HashMap::new(),
            cqs: HashMap::new(),
            srqs: HashMap::new(),
            counts: Counts::default(),
            groups: HashMap::new(),
            pushes,
            lost: Vec::new(),
            faults: Faults::default(),
            removed: false,
            next_serial: 1,
        }
    }

    /// The device's name for the object of that number.
    pub fn id(&self, number: u32) -> Id {
        Id { function: self.function, number }
    }

    /// A name that no object has had.
    pub fn serial(&mut self) -> Serial {
        let serial = self.next_serial;
        self.next_serial += 1;
        serial
    }

    /// The GID at an index of the port's table: `EINVAL` beyond it, `ENODATA` where it is empty.
    pub fn gid(&self, index: u32) -> Result<Gid> {
        if index >= self.profile.gid_table_length() {
            return Err(EINVAL);
        }
        self.profile.gids.get(index as usize).copied().ok_or(ENODATA)
    }
}

/// A request being served.
#[derive(Debug)]
pub struct Call<'a> {
    /// The request.
    pub request: &'a Request,
    /// The file it came on.
    pub file: &'a mut OpenFile,
    /// The card.
    pub hardware: &'a mut Hardware,
}

impl Call<'_> {
    /// Serves the request.
    pub fn run(&mut self) -> Result<Answer> {
        let method = self.request.method();
        self.hardware.faults.check(method.name)?;
        let mut answer = (method.handler)(self)?;
        self.distort(method.name, &mut answer);
        answer.mark_driver(self.request);
        Ok(answer)
    }

    /// Makes the answer to a command as wrong as was asked for.
    pub fn distort(&mut self, command: &str, answer: &mut Answer) {
        if let Some(part) = answer.driver_part(self.request) {
            self.hardware.faults.distort(command, part);
        }
    }
}
