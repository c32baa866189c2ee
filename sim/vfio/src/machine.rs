//! The NIC as a whole: one engine, its functions, and the wire between them.

use std::time::Duration;

use irdma_engine::event::Subject;
use irdma_engine::spec::{DeviceConfig, FunctionId, Generation, Mac};
use irdma_engine::{Engine, Platform};

use crate::function::Function;
use crate::host::{Host, Reach};
use crate::ice;
use crate::idpf::{self, Idpf};
use crate::pci::Configuration;

/// Largest datagram; programs are held to the MTU of their network interface by the driver.
const PORT_MTU: u32 = 4096;

/// The registers of a function.
#[derive(Debug)]
enum Front {
    Idpf(Box<Idpf>),
    Ice,
}

/// A function with its registers and its configuration space.
#[derive(Debug)]
struct Port {
    function: Function,
    front: Front,
    configuration: Configuration,
}

/// The NIC.
#[derive(Debug)]
pub struct Machine {
    engine: Engine<Host>,
    ports: Vec<Port>,
    generation: Generation,
}

/// The Ethernet address of a function: locally administered.
fn mac_of(function: FunctionId) -> Mac {
    let [.., high, low] = (function + 1).to_be_bytes();
    [0x02, 0x15, 0x92, 0x00, high, low]
}

impl Machine {
    /// A NIC with that many functions.
    pub fn new(generation: Generation, functions: usize) -> Self {
        let config = DeviceConfig { generation, port_mtu: PORT_MTU, seed: 1 };
        let mut engine = Engine::new(config, Host::new(functions));
        let ports = (0..functions)
            .map(|_| {
                let id = engine.add_function(Vec::new());
                let mac = mac_of(id);
                engine.set_mac(id, mac);
                let front =
                    if generation >= Generation::Gen3 { Front::Idpf(Box::default()) } else { Front::Ice };
                Port {
                    function: Function::new(id, generation, mac),
                    front,
                    configuration: Configuration::new(generation),
                }
            })
            .collect();
        Self { engine, ports, generation }
    }

    /// Bytes of the register BAR.
    pub fn bar_bytes(generation: Generation) -> u64 {
        if generation >= Generation::Gen3 { idpf::BAR_BYTES } else { ice::BAR_BYTES }
    }

    /// Configuration space of a function.
    pub fn configuration(&mut self, function: FunctionId) -> Option<&mut Configuration> {
        self.ports.get_mut(function as usize).map(|port| &mut port.configuration)
    }

    /// What a function reaches of its guest.
    pub fn reach(&mut self, function: FunctionId) -> Option<&mut Reach> {
        self.engine.platform().reach(function)
    }

    /// The interrupts of a function.
    pub fn interrupts(&mut self, function: FunctionId) -> Option<&mut crate::interrupts::Interrupts> {
        self.ports.get_mut(function as usize).map(|port| &mut port.function.interrupts)
    }

    /// A load from a register.
    pub fn read(&mut self, function: FunctionId, place: u64) -> u32 {
        let Some(port) = self.ports.get_mut(function as usize) else { return 0 };
        match &port.front {
            Front::Idpf(idpf) => idpf.read(&port.function, place),
            Front::Ice => ice::read(&port.function, place),
        }
    }

    /// A store to a register, and all that follows from it.
    pub fn write(&mut self, function: FunctionId, place: u64, value: u32) {
        let Some(port) = self.ports.get_mut(function as usize) else { return };
        match &mut port.front {
            Front::Idpf(idpf) => idpf.write(&mut port.function, &mut self.engine, place, value),
            Front::Ice => ice::write(&mut port.function, &mut self.engine, place, value),
        }
        self.settle();
        self.switch(function);
    }

    /// Begins anew with a function, as after power-up; its guest's memory stays mapped.
    pub fn reset(&mut self, function: FunctionId) {
        let Some(port) = self.ports.get_mut(function as usize) else { return };
        match &mut port.front {
            Front::Idpf(idpf) => idpf.reset(&mut port.function, &mut self.engine),
            Front::Ice => port.function.forget_objects(&mut self.engine),
        }
        port.configuration = Configuration::new(self.generation);
        self.settle();
    }

    /// The guest of a function has gone.
    pub fn disconnect(&mut self, function: FunctionId) {
        self.reset(function);
        if let Some(reach) = self.reach(function) {
            reach.memory.clear();
        }
        if let Some(interrupts) = self.interrupts(function) {
            interrupts.clear();
        }
    }

    /// Time until something is due; `None` if nothing is.
    pub fn next_due(&mut self) -> Option<Duration> {
        let deadline = self.engine.next_deadline()?;
        Some(deadline.saturating_sub(self.engine.platform().now()))
    }

    /// Does what is due.
    pub fn advance(&mut self) {
        self.engine.advance();
        self.settle();
    }

    /// Reports everything that the engine has reported to the drivers.
    fn settle(&mut self) {
        loop {
            let host = self.engine.platform();
            let completions = std::mem::take(&mut host.completions);
            let events = std::mem::take(&mut host.events);
            if completions.is_empty() && events.is_empty() {
                return;
            }
            for cq in completions {
                if let Some(port) = self.ports.get_mut(cq.function as usize) {
                    port.function.report_completion(&mut self.engine, cq.number);
                }
            }
            for event in events {
                let (Subject::Qp(id) | Subject::Cq(id) | Subject::Srq(id)) = event.subject;
                if let Some(port) = self.ports.get_mut(id.function as usize) {
                    port.function.report_event(&mut self.engine, &event);
                }
            }
        }
    }

    /// Takes the Ethernet frames that a function has sent to the others.
    fn switch(&mut self, from: FunctionId) {
        let Some(Port { front: Front::Idpf(idpf), .. }) = self.ports.get_mut(from as usize) else { return };
        for frame in std::mem::take(&mut idpf.vport.outgoing) {
            let Some(&destination) = frame.first_chunk::<6>() else { continue };
            let several = destination[0] & 1 != 0;
            for port in &mut self.ports {
                let wanted = several || port.function.mac == destination;
                if let Front::Idpf(idpf) = &mut port.front
                    && port.function.id != from
                    && wanted
                {
                    idpf.vport.receive(&mut port.function, &mut self.engine, &frame);
                }
            }
        }
    }
}
