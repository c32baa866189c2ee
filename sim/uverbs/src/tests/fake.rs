//! A program that is not there: some memory, some descriptors, and the calls it makes.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::rc::Rc;

use irdma_engine::MemoryFault;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::abi::core;
use crate::abi::driver;
use crate::abi::number::{
    CORE_IN, CORE_OUT, DRIVER, DRIVER_IN, DRIVER_OUT, FLAG_MANDATORY, FLAG_VALID_OUTPUT, WRITE_COMMAND,
    command, object,
};
use crate::device::{Device, Granted};
use crate::errno::Errno;
use crate::profile::Profile;
use crate::program::Program;

/// First address of the memory.
pub const BASE: u64 = 0x1000_0000;
/// Its size.
const SIZE: usize = 1 << 20;
/// The rings' part of it.
pub const RINGS: u64 = BASE + 0x1_0000;
/// The one open node.
pub const TOKEN: u64 = 42;

/// The program's side.
#[derive(Debug)]
pub struct Fake {
    bytes: RefCell<Vec<u8>>,
    names: RefCell<HashMap<i32, String>>,
    files: RefCell<HashMap<i32, File>>,
    /// Whether it has the rights that root has.
    pub privileged: Cell<bool>,
}

impl Fake {
    fn range(&self, address: u64, length: usize) -> Result<std::ops::Range<usize>, MemoryFault> {
        let start =
            usize::try_from(address.checked_sub(BASE).ok_or(MemoryFault)?).map_err(|_| MemoryFault)?;
        let end = start.checked_add(length).filter(|end| *end <= SIZE).ok_or(MemoryFault)?;
        Ok(start..end)
    }
}

impl Program for Fake {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), MemoryFault> {
        buffer.copy_from_slice(&self.bytes.borrow()[self.range(address, buffer.len())?]);
        Ok(())
    }

    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), MemoryFault> {
        let range = self.range(address, bytes.len())?;
        self.bytes.borrow_mut()[range].copy_from_slice(bytes);
        Ok(())
    }

    fn is_mapped(&self, address: u64, length: u64, _writable: bool) -> bool {
        usize::try_from(length).is_ok_and(|length| self.range(address, length).is_ok())
    }

    fn descriptor_name(&self, number: i32) -> Option<String> {
        self.names.borrow().get(&number).cloned()
    }

    fn open_descriptor(&self, number: i32) -> io::Result<File> {
        let files = self.files.borrow();
        files.get(&number).ok_or(io::Error::from_raw_os_error(libc::EBADF))?.try_clone()
    }

    fn may_send_raw(&self) -> bool {
        self.privileged.get()
    }
}

/// An attribute as a program would send it.
#[derive(Clone, Debug)]
pub enum Attribute {
    In(u16, Vec<u8>, u16),
    Out(u16, usize),
    OutAt(u16, usize, u64),
    Handle(u16, u64),
    NewHandle(u16),
}

impl Attribute {
    /// Not mandatory.
    pub fn ignorable(self) -> Attribute {
        match self {
            Attribute::In(id, bytes, _) => Attribute::In(id, bytes, 0),
            other => other,
        }
    }
}

pub fn input(id: u16, bytes: &[u8]) -> Attribute {
    Attribute::In(id, bytes.to_vec(), FLAG_MANDATORY)
}

pub fn output(id: u16, length: usize) -> Attribute {
    Attribute::Out(id, length)
}

/// What a call gave.
#[derive(Debug, Default)]
pub struct Outcome {
    outputs: HashMap<u16, Vec<u8>>,
    data: HashMap<u16, u64>,
    flags: HashMap<u16, u16>,
    pub granted: Option<Granted>,
}

impl Outcome {
    pub fn out(&self, id: u16) -> &[u8] {
        &self.outputs[&id]
    }

    pub fn read<T: FromBytes>(&self, id: u16) -> T {
        T::read_from_prefix(self.out(id)).unwrap_or_else(|_| panic!("answer {id} is too short")).0
    }

    pub fn handle(&self, id: u16) -> u32 {
        self.data[&id] as u32
    }

    pub fn is_marked(&self, id: u16) -> bool {
        self.flags[&id] & FLAG_VALID_OUTPUT != 0
    }
}

/// A device with one open node and its program.
#[derive(Debug)]
pub struct Fixture {
    pub device: Device,
    pub program: Rc<Fake>,
    channels: i32,
}

impl Fixture {
    pub fn new(profile: Profile) -> Fixture {
        let mut device = Device::new(profile, true).unwrap();
        device.open(TOKEN).unwrap();
        let program = Rc::new(Fake {
            bytes: RefCell::new(vec![0; SIZE]),
            names: RefCell::new(HashMap::new()),
            files: RefCell::new(HashMap::new()),
            privileged: Cell::new(false),
        });
        Fixture { device, program, channels: 0 }
    }

    pub fn with_context(profile: Profile) -> Fixture {
        let mut fixture = Fixture::new(profile);
        fixture.get_context(3 | 8, 80).unwrap();
        fixture
    }

    pub fn ioctl_at(&mut self, address: u64) -> Result<(), Errno> {
        self.device.ioctl(TOKEN, self.program.clone(), address).map(drop)
    }

    /// Puts bytes at the very end of the memory.
    pub fn place_last(&self, bytes: &[u8]) -> u64 {
        let address = BASE + (SIZE - bytes.len()) as u64;
        self.program.write(address, bytes).unwrap();
        address
    }

    pub fn call(&mut self, object: u16, method: u16, attributes: &[Attribute]) -> Result<Outcome, Errno> {
        let start = BASE + 24;
        let mut scratch = start + 16 * attributes.len() as u64;
        let mut request = Vec::new();
        for word in [24 + 16 * attributes.len() as u16, object, method, attributes.len() as u16] {
            request.extend(word.to_le_bytes());
        }
        request.extend([0; 8]);
        request.extend(DRIVER.to_le_bytes());
        request.extend([0; 4]);
        let mut places = Vec::new();
        for attribute in attributes {
            let (id, length, flags, data) = match attribute {
                Attribute::In(id, bytes, flags) if bytes.len() <= 8 => {
                    let mut word = [0; 8];
                    word[..bytes.len()].copy_from_slice(bytes);
                    (*id, bytes.len(), *flags, u64::from_le_bytes(word))
                }
                Attribute::In(id, bytes, flags) => {
                    let place = scratch;
                    self.program.write(place, bytes).unwrap();
                    scratch += bytes.len().next_multiple_of(8) as u64;
                    (*id, bytes.len(), *flags, place)
                }
                Attribute::Out(id, length) => {
                    let place = scratch;
                    self.program.write(place, &vec![0xee; *length]).unwrap();
                    scratch += length.next_multiple_of(8) as u64;
                    places.push((*id, place, *length));
                    (*id, *length, FLAG_MANDATORY, place)
                }
                Attribute::OutAt(id, length, place) => (*id, *length, FLAG_MANDATORY, *place),
                Attribute::Handle(id, handle) => (*id, 0, FLAG_MANDATORY, *handle),
                Attribute::NewHandle(id) => (*id, 0, FLAG_MANDATORY, 0),
            };
            request.extend(id.to_le_bytes());
            request.extend((length as u16).to_le_bytes());
            request.extend(flags.to_le_bytes());
            request.extend([0; 2]);
            request.extend(data.to_le_bytes());
        }
        self.program.write(BASE, &request).unwrap();
        let granted = self.device.ioctl(TOKEN, self.program.clone(), BASE)?;
        let mut outcome = Outcome { granted, ..Outcome::default() };
        for (id, place, length) in places {
            let mut bytes = vec![0; length];
            self.program.read(place, &mut bytes).unwrap();
            outcome.outputs.insert(id, bytes);
        }
        for index in 0..attributes.len() as u64 {
            let mut bytes = [0; 16];
            self.program.read(start + 16 * index, &mut bytes).unwrap();
            let id = u16::from_le_bytes([bytes[0], bytes[1]]);
            outcome.flags.insert(id, u16::from_le_bytes([bytes[4], bytes[5]]));
            outcome.data.insert(id, u64::from_le_bytes(bytes[8..].try_into().unwrap()));
        }
        Ok(outcome)
    }

    /// A command in its old form.
    pub fn old<Response: FromBytes>(
        &mut self,
        number: u32,
        request: &(impl IntoBytes + Immutable),
        driver_in: &[u8],
        driver_out: usize,
    ) -> Result<(Response, Outcome), Errno> {
        let mut attributes = vec![
            input(WRITE_COMMAND, &u64::from(number).to_le_bytes()),
            input(CORE_IN, request.as_bytes()),
            output(CORE_OUT, size_of::<Response>()),
        ];
        if !driver_in.is_empty() {
            attributes.push(input(DRIVER_IN, driver_in));
        }
        if driver_out > 0 {
            attributes.push(output(DRIVER_OUT, driver_out));
        }
        let outcome = self.call(object::DEVICE, 0, &attributes)?;
        Ok((outcome.read(CORE_OUT), outcome))
    }

    pub fn get_context(&mut self, comp_mask: u64, room: usize) -> Result<Outcome, Errno> {
        let request =
            driver::AllocUcontextReq { userspace_ver: 5, comp_mask: comp_mask & !2, ..Default::default() };
        let attributes =
            [output(0, 4), output(1, 8), input(DRIVER_IN, request.as_bytes()), output(DRIVER_OUT, room)];
        self.call(object::DEVICE, 3, &attributes)
    }

    pub fn try_alloc_pd(&mut self) -> Result<u32, Errno> {
        let request = core::AllocPd::default();
        let (told, _) = self.old::<core::AllocPdResp>(command::ALLOC_PD, &request, &[], 8)?;
        Ok(told.pd_handle)
    }

    pub fn alloc_pd(&mut self) -> u32 {
        self.try_alloc_pd().unwrap()
    }

    /// Registers memory; `ring` is the driver's request.
    pub fn reg_mr(
        &mut self,
        pd: u32,
        start: u64,
        length: u64,
        ring: [u16; 4],
    ) -> Result<core::RegMrResp, Errno> {
        let request = core::RegMr {
            start,
            length,
            hca_va: start,
            pd_handle: pd,
            access_flags: 7,
            ..Default::default()
        };
        let driver: Vec<u8> = ring.iter().flat_map(|word| word.to_le_bytes()).collect();
        Ok(self.old(command::REG_MR, &request, &driver, 0)?.0)
    }

    pub fn dereg_mr(&mut self, handle: u32) -> Result<(), Errno> {
        self.call(object::MR, 1, &[Attribute::Handle(0, handle.into())]).map(drop)
    }

    /// A CQ of 4 entries over two pages at `ring`: its handle and number, and the handles of its registrations.
    pub fn create_cq(&mut self, pd: u32, ring: u64, channel: Option<i32>) -> (u32, u32, [u32; 2]) {
        let first = self.reg_mr(pd, ring, 4096, [2, 1, 0, 0]).unwrap().mr_handle;
        let second = self.reg_mr(pd, ring + 4096, 64, [2, 1, 0, 0]).unwrap().mr_handle;
        let request = driver::CreateCqReq { user_cq_buf: ring, user_shadow_area: ring + 4096 };
        let mut attributes = vec![
            Attribute::NewHandle(0),
            output(6, 4),
            input(1, &4u32.to_le_bytes()),
            input(2, &0x77u64.to_le_bytes()),
            input(4, &0u32.to_le_bytes()),
            input(DRIVER_IN, request.as_bytes()),
            output(DRIVER_OUT, 8),
        ];
        attributes.extend(channel.map(|descriptor| Attribute::Handle(3, descriptor as u64)));
        let outcome = self.call(object::CQ, 0, &attributes).unwrap();
        let told: driver::CreateCqResp = outcome.read(DRIVER_OUT);
        (outcome.handle(0), told.cq_id, [first, second])
    }

    /// An event channel: the number by which the program knows it, and its end.
    pub fn create_channel(&mut self, asynchronous: bool) -> (i32, File) {
        let granted = if asynchronous {
            self.call(object::ASYNC_EVENT, 0, &[Attribute::NewHandle(0)]).unwrap().granted.unwrap()
        } else {
            let request = core::CreateCompChannel::default();
            let answered =
                self.old::<core::CreateCompChannelResp>(command::CREATE_COMP_CHANNEL, &request, &[], 0);
            answered.unwrap().1.granted.unwrap()
        };
        assert_eq!(granted.length, if asynchronous { 8 } else { 4 });
        let name = std::fs::read_link(format!("/proc/self/fd/{}", granted.descriptor.as_raw_fd())).unwrap();
        self.channels += 1;
        let number = 1000 + self.channels;
        self.program.names.borrow_mut().insert(number, name.to_str().unwrap().to_owned());
        (number, File::from(granted.descriptor))
    }

    /// Gives the program a descriptor of a file that the kernel calls `name`.
    pub fn add_descriptor(&self, number: i32, name: &str, file: File) {
        self.program.names.borrow_mut().insert(number, name.to_owned());
        self.program.files.borrow_mut().insert(number, file);
    }

    pub fn status(&mut self) -> String {
        self.device.control("status").unwrap()
    }
}

/// Reads one record of a channel.
pub fn read_record<const SIZE: usize>(end: &mut File) -> [u8; SIZE] {
    let mut record = [0; SIZE];
    end.read_exact(&mut record).unwrap();
    record
}
